"""`python -m meta relay`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meta
from meta.cli import main

NETWORK = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) -> Tensor[(2, 4), float32] {
  nn.dense(%x, %w, units=4)
}
"""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.relay"
    path.write_text(NETWORK)
    np.savez(tmp_path / "params.npz", w=np.ones((4, 3), "float32"))
    np.savez(tmp_path / "x.npz", x=np.full((2, 3), 2, "float32"))
    return path


def run(network: Path, *options: str) -> int:
    with meta.with_dialect(["reference"]):
        return main(["relay", str(network), "--interpreter", "--repeat", "1", *options])


def test_runs_and_explains(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = network.parent
    options = ["--params", str(where / "params.npz"), "--input", f"x={where / 'x.npz'}", "--explain"]
    assert run(network, *options) == 0
    printed = capsys.readouterr().out
    assert "ok       nn.dense      1  line 3" in printed
    assert "imported net.relay (Relay) in" in printed
    assert "dense(%x, " in printed
    assert "[[6. 6. 6. 6.]" in printed


def test_draws_inputs_and_takes_shapes(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(network, "--shape", "x=5,3") == 0
    printed = capsys.readouterr().out
    assert "drawn at random (seed 0): x, w" in printed
    assert 'output: Tensor[(5, 4), "float32"]' in printed


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--input", "y=x.npz"], "there is no input 'y'; expected one of x, w"),
        (["--input", "x"], "--input NAME=VALUE"),
        (["--shape", "x=a"], "--shape NAME=1,3,224,224"),
        (["--input", "x=missing.npz"], "[import] cannot read missing.npz"),
        (["--input", "x=huge.npy"], "shape (1000000, 1000000, 1000000) and float32 in 128 bytes"),
    ],
)
def test_mistakes_are_said(
    network: Path,
    options: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6, 10**6)}
    with (network.parent / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    monkeypatch.chdir(network.parent)
    assert run(network, *options) == 1
    assert text in capsys.readouterr().err


def test_drawn_variances_are_positive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"%p{i}" for i in range(12)]
    path = tmp_path / "norm.relay"
    path.write_text(f"""#[version = "0.0.5"]
def @main(%x: Tensor[(1, 64, 2, 2), float32], %g: Tensor[(64), float32], %b: Tensor[(64), float32],
          %m: Tensor[(64), float32], %v: Tensor[(64), float32],
          {", ".join(f"{name}: Tensor[(1), float32]" for name in names)}) {{
  %0 = nn.batch_norm(%x, %g, %b, %m, %v);
  %0.0
}}
""")
    assert run(path) == 0
    printed = capsys.readouterr().out
    assert "x, g, b, m, v, p0, p1, p2 and 9 more" in printed
    assert "nan" not in printed
