"""`python -m meta import`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meta
from meta.cli import main

OPEN = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, 3), float32], %y: Tensor[(?, 3), float32], %i: Tensor[(2), int64]) {
  (nn.relu(%x), (take(%y, %i, axis=0),))
}
"""
UNSUPPORTED = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  %0 = nn.mystery(%x);
  %1 = take(%x, 0, axis=0, mode="raise");
  (%0, %1)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "open.relay").write_text(OPEN)
    (tmp_path / "unsupported.relay").write_text(UNSUPPORTED)
    (tmp_path / "model.h5").write_bytes(b"")
    with (tmp_path / "large.relay").open("wb") as file:
        file.truncate(1 << 31)
    np.save(tmp_path / "x.npy", np.zeros((4, 3), "float32"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*options: str) -> int:
    with meta.with_dialect(["reference"]):
        return main(["import", *options])


@pytest.mark.usefixtures("folder")
def test_prints_the_types_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("open.relay") == 0
    first, *types = capsys.readouterr().out.splitlines()
    assert first.startswith("imported open.relay (Relay) in ")
    assert types == [
        'input x: Tensor[(x_0, 3), "float32"]',
        'input y: Tensor[(y_0, 3), "float32"]',
        'input i: Tensor[(2,), "int64"]',
        'output.0: Tensor[(x_0, 3), "float32"]',
        'output.1.0: Tensor[(2, 3), "float32"]',
    ]


@pytest.mark.usefixtures("folder")
def test_symbolic_sizes_are_given_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--run", "--interpreter", "--repeat", "0", "--size", "y_0=9")
    assert run("open.relay", *options, "--size", "x_0=5") == 0
    assert 'output.0: Tensor[(5, 3), "float32"]' in capsys.readouterr().out
    assert run("open.relay", *options, "--input", "x=x.npy") == 0
    assert 'output.0: Tensor[(4, 3), "float32"]' in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_examine_reports_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("open.relay", "--examine") == 0
    assert "2 operators, 2 uses; all supported" in capsys.readouterr().out
    assert run("unsupported.relay", "--examine") == 1
    report = capsys.readouterr().out
    assert "MISSING  nn.mystery      1  line 3" in report
    assert "PROBLEM  line 4, column 8: take: mode is 'raise'" in report
    assert run("unsupported.relay") == 1
    error = capsys.readouterr().err
    assert "1 operator is not supported: nn.mystery (once: line 3)" in error
    assert "line 4, column 8: take: mode is 'raise'" in error


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["missing.relay"], "there is no file missing.relay; expected a model"),
        (["model.h5"], "model.h5 is of an unknown format; expected one of ."),
        (["open.relay", "--run"], "the shape of 'x' is open: Tensor[(x_0, 3), \"float32\"]; expected known sizes; "
         "pass --size x_0=..., or --input x=FILE"),
        (["open.relay", "--run", "--size", "x0=3"], "no symbolic size 'x0'; expected one of x_0, y_0; did you mean"),
        (["open.relay", "--run", "--size", "x_0=-3"], "--size x_0=-3; expected a number from 0"),
        (["open.relay", "--run", "--size", "x_0=99999999999", "--size", "y_0=2"],
         "[import] the input 'x' of shape (99999999999, 3) cannot be drawn at random; expected at most "),
        (["open.relay", "--run", "--size", f"x_0={10**30}", "--size", "y_0=2"], "cannot be drawn at random"),
        (["open.relay", "--seed", "-1"], "[import] --seed -1; expected a number from 0 to 2**32 - 1"),
        (["open.relay", "--repeat", "-3"], "[import] --repeat -3; expected a number from 0"),
        (["open.relay", "--shape", "x=a"], "--shape NAME=1,3,224,224"),
        (["open.relay", "--shape", f"x={2**62},3"], "[relay] shapes['x']: shape (4611686018427387904, 3) of float32 "),
        (["large.relay"], "error: [relay] large.relay has 2147483648 bytes; expected at most 1073741824"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_mistakes_are_said(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*options) == 1
    assert text in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_profile_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("open.relay", "--profile", "--interpreter", "--size", "x_0=5", "--size", "y_0=4", "--repeat", "1") == 0
    printed = capsys.readouterr().out
    assert "then " in printed
    assert "relu" in printed


def test_every_format_is_listed_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    from meta.cli.formats import FORMATS

    with pytest.raises(SystemExit):
        main(["import", "--help"])
    printed = capsys.readouterr().out
    assert all(suffix in printed for suffix in FORMATS)


def test_reads_programs_of_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="it writes the file")
    module = torch.nn.Linear(3, 2).eval()
    sizes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(module, (torch.ones(4, 3),), dynamic_shapes=sizes)
    path = str(tmp_path / "net.pt2")
    torch.export.save(program, path)
    assert run(path, "--examine") == 0
    assert "aten.linear.default" in capsys.readouterr().out
    assert run(path, "--run", "--interpreter", "--repeat", "0") == 1
    expected = capsys.readouterr().err
    assert "pass --size " in expected
    size = expected.partition("--size ")[2].partition("=")[0]
    assert run(path, "--run", "--interpreter", "--repeat", "0", "--size", f"{size}=5") == 0
    printed = capsys.readouterr().out
    assert "imported net.pt2 (PyTorch) in " in printed
    assert 'Tensor[(5, 2), "float32"]' in printed
    assert run(path, "--params", path) == 1
    assert "--params for net.pt2; expected neither" in capsys.readouterr().err


def test_an_onnx_model_that_needs_values_says_how_to_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="it writes the file")
    pytest.importorskip("onnx_ir", reason="it reads the file")
    head = '<ir_version: 9, opset_import: ["" : 21]>'
    model = onnx.parser.parse_model(head + "g (float[2, 3] x, int64[2] to) => (float[a, b] y) { y = Reshape(x, to) }")
    path = str(tmp_path / "net.onnx")
    onnx.save(model, path)
    assert run(path) == 1
    error = capsys.readouterr().err
    assert "[import] the Reshape that computes 'y': shape depends on the values of the model's inputs" in error
    assert "pass it: --params FILE.npz" in error
    np.savez(tmp_path / "to.npz", to=np.array([3, 2]))
    assert run(path, "--params", str(tmp_path / "to.npz"), "--run", "--interpreter", "--repeat", "0") == 0
    assert 'Tensor[(3, 2), "float32"]' in capsys.readouterr().out
    assert run(path, "--params", str(tmp_path / "from.npz")) == 1
    assert "[import] cannot read" in capsys.readouterr().err
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(1 << 32)
    assert run(str(tmp_path / "large.onnx")) == 1
    error = capsys.readouterr().err
    assert "has 4294967296 bytes; expected at most 2147483648, with weights as external data" in error
    assert "cannot read" not in error
