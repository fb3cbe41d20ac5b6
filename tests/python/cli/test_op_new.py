"""`python -m meta op new NAME`: a blank operator, in a new or an existing package, that passes the generic checks."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import meta
from meta import errors
from meta.cli import main

ENTRY_POINT = '[project.entry-points."meta.operators"]\n{0} = "{0}"\n'


def edited(out: str) -> list[str]:
    """The lines that the command names."""
    places = re.findall(r"(\S+\.py):(\d+)", out.partition("Then:")[0])
    return [Path(path).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip() for path, number in places]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(errors, "_operator_modules", ())
    return tmp_path


@pytest.mark.usefixtures("remove_operators")
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_a_new_package_passes_its_own_test(
    inputs: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = folder / f"blank-of-{inputs}"
    assert main(["op", "new", "blank", "--inputs", str(inputs), "--package", str(package)]) == 0
    out, module = capsys.readouterr().out, f"blank_of_{inputs}"
    begins = ("return te.compute(", "def reference(", 'Arg("x', 'gradient={"x', 'rules.require_float("x', "SAMPLES = [")
    assert all(line.startswith(begin) for line, begin in zip(edited(out), begins, strict=True))
    test = package / "tests/test_blank.py"
    assert f"pip install -e {package}\n  python -m pytest {test}" in out
    assert ENTRY_POINT.format(module) in (package / "pyproject.toml").read_text(encoding="utf-8")
    monkeypatch.syspath_prepend(package / "src")
    tests = runpy.run_path(str(test))  # it imports the package
    assert Path(str(sys.modules[module].__file__)).is_relative_to(package)
    tests["test_blank"]()
    arrays = [meta.array(np.float32([1, -2, 3]), requires_grad=True) for _ in range(inputs)]
    y = getattr(meta.ops, module).blank(*arrays)
    y.backward(meta.ones((3,)))
    power = max(inputs, 2)
    assert y.detach().numpy().tolist() == [1, (-2) ** power, 3**power]
    slope = 2 if inputs == 1 else 1
    assert arrays[-1].grad.numpy().tolist() == [slope, slope * (-2) ** (power - 1), slope * 3 ** (power - 1)]


@pytest.mark.usefixtures("remove_operators")
@pytest.mark.parametrize("sources", ["mine_in_src/src/mine_in_src", "mine_beside/mine_beside"])
def test_an_existing_package_gets_an_operator(sources: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / Path(sources).parts[0]
    (folder / sources).mkdir(parents=True)
    (folder / sources / "__init__.py").write_text("VALUE = 3", encoding="utf-8")
    (package / "tests").mkdir()
    (package / "tests/__init__.py").touch()
    (package / "pyproject.toml").write_text('[project]\nname = "mine"\n', encoding="utf-8")
    monkeypatch.chdir(package)
    assert main(["op", "new", "first"]) == 0
    assert main(["op", "new", "second", "--inputs", "2", "--package", str(folder / sources)]) == 0
    project = (package / "pyproject.toml").read_text(encoding="utf-8")
    assert project == '[project]\nname = "mine"\n\n' + ENTRY_POINT.format(package.name)
    monkeypatch.syspath_prepend((folder / sources).parent)
    for name in ("first", "second"):
        runpy.run_path(str(package / f"tests/test_{name}.py"))[f"test_{name}"]()
    assert sys.modules[package.name].VALUE == 3


def test_an_operator_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["op", "new", "squared", "--package", str(folder / "squares")]
    assert main(arguments) == 0
    before = {file: file.read_text(encoding="utf-8") for file in folder.rglob("*.*") if file.is_file()}
    assert main(arguments) == 1
    assert "squared.py exists already; expected a new operator; choose another name" in capsys.readouterr().err
    assert {file: file.read_text(encoding="utf-8") for file in folder.rglob("*.*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "folder", "text"),
    [
        (["my-op"], "new", "an operator cannot be called 'my-op'"),
        (["class"], "new", "an operator cannot be called 'class'"),
        (["mine", "other"], "new", "got 2 names; expected python -m meta op new NAME [--inputs 2] [--package DIR]"),
        (["mine", "--inputs", "0"], "new", "--inputs is 0; expected at least 1"),
        (["mine"], "json", "'json' is installed; expected the name of a new module"),
        (["mine"], "1st", "'1st' is not a name that a module can have"),
        (["mine"], "import", "'import' is not a name that a module can have"),
        (["mine"], "softmax", "'softmax' is the name of an operator, which no namespace can have"),
        (["mine"], ".", "exists and has no pyproject.toml; expected a new folder, or a project"),
    ],
)
def test_refusals_write_nothing(
    arguments: list[str], folder: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["op", "new", *arguments, "--package", str(tmp_path / folder)]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("modules", "text"),
    [
        ([], "has 0 folders with __init__.py: none; expected one"),
        (["one", "two"], "has 2 folders with __init__.py"),
        (["softmax"], "'softmax' is the name of an operator, which no namespace can have"),
    ],
)
def test_projects_without_one_module(
    modules: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    for module in modules:
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").touch()
    assert main(["op", "new", "mine", "--package", str(tmp_path)]) == 1
    assert text in capsys.readouterr().err
