"""`python -m meta op new NAME --package DIR`: a package with a blank operator that passes the generic checks."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import meta
from meta import errors
from meta.cli import main


@pytest.mark.usefixtures("remove_operators")
def test_a_package_passes_its_own_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_operator_modules", ())
    folder = tmp_path / "blank-package"
    assert main(["op", "new", "squared", "--package", str(folder)]) == 0
    out = capsys.readouterr().out
    steps = [line.split()[0].rpartition(":") for line in out.partition("Then:")[0].splitlines()[1:]]
    edited = {
        Path(path).relative_to(folder).as_posix(): Path(path)
        .read_text(encoding="utf-8")
        .splitlines()[int(number) - 1]
        .strip()
        for path, _, number in steps
    }
    assert edited == {
        "src/blank_package/__init__.py": "@meta.define(",
        "src/blank_package/compute.py": 'return te.compute(x.shape, lambda *index: x(*index) * x(*index), "squared")',
        "src/blank_package/reference.py": "return x * x",
        "tests/test_squared.py": "report = opcheck(blank_package.squared, (T(3, 4, low=-1.0, high=1.0),))",
    }
    assert f"pip install -e {folder}\n  python -m pytest {folder}" in out
    project = (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points."meta.operators"]\nblank_package = "blank_package"\n' in project
    monkeypatch.syspath_prepend(folder / "src")
    tests = runpy.run_path(str(folder / "tests/test_squared.py"))  # it imports the package
    assert Path(str(sys.modules["blank_package"].__file__)).is_relative_to(folder)
    tests["test_squared"]()
    x = meta.array(np.float32([1, -2, 3]), requires_grad=True)
    y = meta.ops.blank_package.squared(x)
    y.backward(meta.ones((3,)))
    assert y.detach().numpy().tolist() == [1, 4, 9]
    assert x.grad.numpy().tolist() == [2, -4, 6]
    assert main(["op", "new", "squared", "--package", str(folder)]) == 1
    assert f"{folder} exists already; expected a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "folder", "text"),
    [
        (["my-op"], "new", "an operator cannot be called 'my-op'"),
        (["class"], "new", "an operator cannot be called 'class'"),
        (["mine", "other"], "new", "got 2 names; expected python -m meta op new NAME --package DIR"),
        (["mine"], "", "got 1 names and no --package; expected python -m meta op new NAME --package DIR"),
        (["mine"], "json", "'json' is installed; expected the name of a new module"),
        (["mine"], "1st", "'1st' is not a name that a module can have"),
        (["mine"], "import", "'import' is not a name that a module can have"),
        (["mine"], "softmax", "'softmax' is the name of an operator, which no namespace can have"),
    ],
)
def test_refusals_write_nothing(
    arguments: list[str], folder: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = ["--package", str(tmp_path / folder)] if folder else []
    assert main(["op", "new", *arguments, *package]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
