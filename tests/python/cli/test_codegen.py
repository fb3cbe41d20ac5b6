"""`python -m meta codegen`: typed functions of the operators of a package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import meta
from meta import errors
from meta.cli import main
from meta.inspect.sources import CHECKOUT
from meta.op import plugins, registry

OPERATORS = '''
import meta
from meta.ir.type import TupleType
from meta.schema import Arg, Choice, Float, IntTuple, Optional, Schema, Tensor, TensorList

@meta.define(
    "NAME::swiglu",
    Schema("swiglu", Arg("x", Tensor, doc="Input."), Arg("gate", Tensor, doc="Gate."), Arg("beta", Float, 1.0)),
    reference=lambda x, gate, beta: x * gate * beta,
    aliases=("NAME::silu_gate",),
)
def swiglu(x, gate, beta):
    """x * sigmoid(beta * x) * gate."""
    return x

TWO = Schema("two", Arg("xs", TensorList), Arg("mode", Choice("a", "b"), "a"), Arg("axis", Optional(IntTuple), None))

@meta.define("NAME::two", TWO, reference=lambda xs, mode, axis: (xs[0], xs[1]), outputs=("y", "z"))
def two(xs, mode, axis):
    return TupleType((xs[0], xs[1]))
'''
USER = """
import meta
import NAME
from typing_extensions import reveal_type

x = meta.ones((2,))
reveal_type(NAME.swiglu)  # reveals: (x: T@swiglu, gate: T@swiglu, beta: float = 1) -> T@swiglu
reveal_type(NAME.swiglu(x, gate=x))  # reveals: NDArray
reveal_type(NAME.silu_gate(x, x, 2.0))  # reveals: NDArray
reveal_type(NAME.two([x, x], "b", axis=(0, 1)))  # reveals: tuple[NDArray, NDArray]
NAME.swiglu(x)  # reports: reportCallIssue
NAME.swiglu(x, x, bta=1.0)  # reports: reportCallIssue
NAME.two([x, x], mode="c")  # reports: reportArgumentType
NAME.swigl(x)  # reports: reportAttributeAccessIssue
"""
INIT = "from NAME import operators\nfrom NAME.functions import *\n"
Package = Callable[..., Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Writes a package with a module `operators` into the working directory, and leaves the process as a new one."""
    name = "gated_units"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(errors, "_operator_modules", ())
    monkeypatch.setattr(plugins, "_started", set())
    monkeypatch.setattr(plugins, "_loaded", {})
    before = {op.name for op in registry.all_ops()}

    def write(init: str = INIT, operators: str = OPERATORS) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(init.replace("NAME", name))
        (folder / "operators.py").write_text(operators.replace("NAME", name))
        _forget(name, before)
        return folder

    yield write
    _forget(name, before)


def _forget(package: str, before: set[str]) -> None:
    """Remove the modules of a package, and the operators that were not there before."""
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        del sys.modules[module]
    for name in {op.name for op in registry.all_ops()} - before:
        meta.unregister(name)


def test_the_names_are_the_functions_of_the_operators(package: Package, capsys: pytest.CaptureFixture[str]) -> None:
    name = package().name
    assert main(["codegen", name]) == 0
    out = capsys.readouterr().out
    assert f"wrote {name}/functions.py: 2 operators of {name}" in out
    assert f"create an empty {name}/py.typed" in out
    package()
    module = import_module(name)
    namespace = getattr(meta.ops, name)
    assert module.swiglu is module.silu_gate is namespace.swiglu is sys.modules[f"{name}.functions"].swiglu
    assert module.two is namespace.two
    assert sys.modules[f"{name}.functions"].__all__ == ["silu_gate", "swiglu", "two"]
    assert module.swiglu.__doc__.startswith("x * sigmoid(beta * x) * gate.\n")
    assert module.swiglu(meta.ones((2,)), meta.ones((2,)), 3.0).tolist() == [3.0, 3.0]
    (Path(name) / "py.typed").touch()
    assert main(["codegen", name]) == 0
    assert capsys.readouterr().out == f"{name}/functions.py is up to date: 2 operators of {name}\n"


def test_type_checkers_read_the_signatures(package: Package, tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="pyright is not installed (the extra dev)")
    folder = package()
    assert main(["codegen", folder.name]) == 0
    user = tmp_path / "user.py"
    user.write_text(USER.replace("NAME", folder.name))
    functions = folder / "functions.py"
    functions.write_text(f"# pyright: strict\n{functions.read_text()}")
    settings = {"extraPaths": [str(CHECKOUT)], "include": ["user.py", f"{folder.name}/functions.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    problems: set[tuple[str, int, str]] = set()
    for message in json.loads(completed.stdout)["generalDiagnostics"]:
        revealed = re.search(r'^Type of ".*" is "(.*)"$', message["message"].replace("\n", " "))
        text = f"reveals: {revealed[1]}" if revealed else f"reports: {message['rule']}"
        problems.add((Path(message["file"]).name, message["range"]["start"]["line"] + 1, text))
    lines = enumerate(user.read_text().splitlines(), 1)
    expected = {("user.py", i, m[1]) for i, line in lines if (m := re.search(r"# (re(?:veals|ports): .*)$", line))}
    assert problems == expected


def test_check_prints_what_differs_and_writes_nothing(package: Package, capsys: pytest.CaptureFixture[str]) -> None:
    folder = package()
    functions = folder / "functions.py"
    assert main(["codegen", folder.name, "--check"]) == 1
    assert not functions.exists()
    assert main(["codegen", folder.name]) == 0
    text = functions.read_text()
    package()
    assert main(["codegen", folder.name, "--check"]) == 0
    # An operator with another default, one more, and one that the module of before imports but that is gone.
    changed = OPERATORS.replace('"beta", Float, 1.0', '"beta", Float, 2.5').replace("NAME::two", "NAME::couple")
    changed = changed.replace("two", "couple")
    package(operators=changed)
    capsys.readouterr()
    assert main(["codegen", folder.name, "--check"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"--- {folder.name}/functions.py (on disk)")
    assert "-    def swiglu(x: T, gate: T, beta: float = 1.0) -> T:\n" in out
    assert "+    def swiglu(x: T, gate: T, beta: float = 2.5) -> T:\n" in out
    assert f"-    two = _meta.ops.{folder.name}.two\n" in out
    assert functions.read_text() == text
    package(operators=changed)
    assert main(["codegen", folder.name]) == 0
    package(operators=changed)
    assert hasattr(import_module(folder.name), "couple")


def test_files_that_were_not_generated_stay(package: Package, capsys: pytest.CaptureFixture[str]) -> None:
    folder = package()
    own = "swiglu = two = silu_gate = None\n"
    (folder / "functions.py").write_text(own)
    for options in ([], ["--check"]):
        assert main(["codegen", folder.name, *options]) == 1
        error = capsys.readouterr().err
        assert f"[codegen] {folder.name}/functions.py exists and was not generated; expected a new file" in error
        assert (folder / "functions.py").read_text() == own
    assert main(["codegen", folder.name, "--output", f"{folder.name}/typed.py"]) == 0
    assert import_module(f"{folder.name}.typed").swiglu is getattr(meta.ops, folder.name).swiglu


def test_a_package_that_defines_its_operators_itself(package: Package) -> None:
    """In `__init__`, below which the functions are imported; without a namespace they are in meta."""
    init = OPERATORS.replace("NAME::", "NAME_") + "\nfrom NAME.functions import NAME_swiglu\n"
    folder = package(init, operators="")
    assert main(["codegen", folder.name]) == 0
    package(init, operators="")
    function = getattr(import_module(folder.name), f"{folder.name}_swiglu")
    assert function is getattr(meta, f"{folder.name}_swiglu")


def test_operators_that_only_an_entry_point_imports(package: Package, tmp_path: Path) -> None:
    """The package is found by the name of its distribution too."""
    folder = package("")
    metadata = tmp_path / f"{folder.name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gated-units\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[meta.operators]\nunits = {folder.name}.operators\n")
    sys.path.insert(0, str(tmp_path))
    assert main(["codegen", "gated-units"]) == 0
    assert f"import {folder.name}.operators" in (folder / "functions.py").read_text()
    for name in (folder.name, "units"):
        assert main(["codegen", name, "--check"]) == 0


@pytest.mark.parametrize(
    ("init", "operators", "text"),
    [
        ("", "", "'NAME' defines no operators; expected operators of meta.define in modules that the package"),
        ("import not_there", "", "'NAME' cannot be imported: No module named 'not_there'"),
        ("import NAME.operators", OPERATORS.replace("NAME::two", "NAME_other::swiglu"), "have one name, 'swiglu'"),
        ("import NAME.operators", OPERATORS.replace("::two", "::float"), "'NAME::float' has the name of a type"),
    ],
)  # fmt: skip
def test_packages_without_a_module_of_functions(
    package: Package, capsys: pytest.CaptureFixture[str], init: str, operators: str, text: str
) -> None:
    folder = package(init, operators)
    assert main(["codegen", folder.name]) == 1
    assert text.replace("NAME", folder.name) in capsys.readouterr().err
    assert not (folder / "functions.py").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no_such_package"], "no package and no entry point of meta.operators is called 'no_such_package'"),
        (["no_such.package"], "no package and no entry point of meta.operators is called 'no_such.package'"),
        (["no-such-package"], "no package and no entry point of meta.operators is called 'no-such-package'"),
        (["colorsys"], "'colorsys' is one module; expected a package, or --output FILE"),
        (["json"], "'json' defines no operators"),
    ],
)
def test_unknown_packages(
    package: Package, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["codegen", *arguments]) == 1
    assert text in capsys.readouterr().err
