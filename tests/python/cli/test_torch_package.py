"""`python -m meta torch`: a package of a package's operators for users of torch, with a test that passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meta.cli import main
from tests.sandbox import ROOT

pytest.importorskip("torch")

OPERATORS = '''"""Operators of every kind of argument."""

import numpy as np

import meta
from meta.ir.type import TupleType
from meta.schema import Arg, DType, Float, IntTuple, Scalar, Schema, Str, Tensor, TensorList


@meta.define("{name}::scaled", Schema("scaled", Arg("x", Tensor), Arg("by", Float, 1.5)), gradient={{"x": "dy * by"}},
             reference=lambda x, by: x * np.float32(by))
def scaled(x, by):
    """x times a number, with a "quoted" word.

    More of it."""
    return x


@meta.define("{name}::ends", Schema("ends", Arg("x", Tensor)), outputs=("low", "high"), gradient=None,
             reference=lambda x: (x * 0, x * 1))
def ends(x):
    return TupleType((x, x))


@meta.define("{name}::total", Schema("total", Arg("xs", TensorList), Arg("mode", Str, "sum"),
             Arg("sizes", IntTuple, (1, 2)), Arg("dtype", DType, "float32")), gradient=None,
             reference=lambda xs, mode, sizes, dtype: xs[0] + xs[1])
def total(xs, mode, sizes, dtype):
    return xs[0]


@meta.define("{name}::raised", Schema("raised", Arg("x", Tensor), Arg("to", Scalar)), gradient=None,
             reference=lambda x, to: x * 1)
def raised(x, to):
    return x


@meta.define("{name}::advance", Schema("advance", Arg("x", Tensor)), inplace={{0: "x"}}, reference=lambda x: x + 1)
def advance(x):
    return x
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove_operators: None) -> Path:
    """A folder with a package `torch_package_NUMBER`, in the working directory."""
    name = f"torch_package_{abs(hash(str(tmp_path))) % 10**8}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(OPERATORS.format(name=name))
    monkeypatch.chdir(tmp_path)
    return tmp_path / name


def test_the_package_passes_its_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = folder.name
    assert main(["torch", name]) == 0
    out = capsys.readouterr().out
    assert f"left out: {name}::advance: torch cannot call it: it writes x in place" in out
    assert f"4 operators of {name}" in out
    project = folder.parent / f"{name}_torch"
    text = (project / "src" / f"{name}_torch" / "__init__.py").read_text()
    for line in (
        "def scaled(x: torch.Tensor, by: float = 1.5) -> torch.Tensor:",
        "def ends(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:",
        "def total(xs: Sequence[torch.Tensor], mode: str = 'sum', sizes: Sequence[int] = (1, 2), "
        "dtype: torch.dtype | None = None) -> torch.Tensor:",
        "def raised(x: torch.Tensor, to: torch.Tensor | float) -> torch.Tensor:",
        '    "scaled": ["scaled(Tensor x, float by=1.5) -> Tensor"],',
    ):
        assert f"\n{line}\n" in text
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project / "tests")],
        env=environment(folder.parent, project / "src"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stdout
    assert "8 passed" in completed.stdout


def environment(*paths: Path) -> dict[str, str]:

    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *paths)))}


def test_check_and_own_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = folder.parent / "own_name"
    arguments = ["torch", folder.name, "-o", str(project)]
    assert main(arguments) == 0
    test = project / "tests" / "test_operators.py"
    test.write_text(test.read_text() + '\nSAMPLES["scaled"] = [(T(5), 2.0)]\n')
    assert main([*arguments, "--check"]) == 0
    module = project / "src" / "own_name" / "__init__.py"
    module.write_text(module.read_text().replace("1.5", "2.5"))
    capsys.readouterr()
    assert main([*arguments, "--check"]) == 1
    assert '+    "scaled": ["scaled(Tensor x, float by=1.5) -> Tensor"],' in capsys.readouterr().out
    assert main(arguments) == 0
    assert 'SAMPLES["scaled"] = [(T(5), 2.0)]' in test.read_text()
    assert main([*arguments, "--check"]) == 0


def test_refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = folder.parent / "mine"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]")
    for arguments, text in (
        (["torch", folder.name, "-o", str(project)], "mine/pyproject.toml exists and was not generated"),
        (["torch", folder.name, "-o", str(folder)], f"'{folder.name}' is not a name for the new module"),
        (["torch", "package_that_is_missing"], "no package and no entry point"),
    ):
        assert main(arguments) == 1
        assert text in capsys.readouterr().err
    assert (project / "pyproject.toml").read_text() == "[project]"
