"""A package of operators, installed beside meta and without torch. check-wheel runs these tests on the wheel.

The package is that of `python -m meta op new`, in a folder of the module's name as usual, with three more operators.
Three processes run its operators eagerly and in a program, and share a disk cache: between the first two every compute
is edited and the package is installed again, and nothing changes between the last two."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meta.cli import main
from tests import sandbox

_MODULE = "separate_operators"
_MORE = """

def _closure(factor):
    return lambda x: topi.multiply(x, factor)


def _default(x, factor={factor}):
    return topi.multiply(x, factor)


for _name, _compute in {{"closure": _closure({factor}), "default": _default, "helper": lambda x: scale(x)}}.items():
    _schema = Schema(_name, Arg("x", Tensor, doc="Values."))
    meta.define(f"separate_operators::by_{{_name}}", _schema, gradient={{"x": "dy"}}, tvm=_compute, pattern="elemwise")(
        lambda x: x
    )
"""
_HELPER = """from tvm import topi


def scale(x):
    return topi.multiply(x, {factor})
"""
_PROGRAM = """
import json, sys
from tests.python.hide_torch import hide_torch
hide_torch()
import meta
assert "separate_operators" not in sys.modules
operators = meta.ops.separate_operators
names = ("squared", "by_closure", "by_default", "by_helper")
x = meta.array([1.0, 2.0], requires_grad=True)
eager = [getattr(operators, name)(x) for name in names]
program = meta.vm.compile(meta.trace(lambda x: tuple(getattr(operators, name)(x) for name in names)))(x.detach())
eager[0].backward(meta.array([1.0, 1.0]))
found = {name: [e.detach().tolist(), p.tolist()] for name, e, p in zip(names, eager, program)}
print(json.dumps({"results": found, "gradient": x.grad.tolist()}))
"""


def _edit(package: Path, factor: float) -> None:
    """Let every compute return `factor` times as much as before the edit."""
    sources = package / "src" / _MODULE
    (sources / "helper.py").write_text(_HELPER.format(factor=factor))
    definitions = sources / "__init__.py"
    head = definitions.read_text().partition("\n\ndef _closure")[0].replace("import meta\n", "", 1)
    imports = "from tvm import topi\n\nimport meta\nfrom meta.schema import Arg, Schema, Tensor\n"
    imports += f"from {_MODULE}.helper import scale\n"
    if imports not in head:
        head = head.replace('"""\n\n', f'"""\n\n{imports}', 1)
    definitions.write_text(head + _MORE.format(factor=factor))
    compute = sources / "squared.py"
    text, edited = re.subn(r"x\(\*index\) \* .*,", f"x(*index) * x(*index) * {factor},", compute.read_text())
    assert edited == 1
    compute.write_text(text)


def _run(python: Path, folder: Path) -> dict[str, Any]:
    """The results of a new process, and the entries of the disk cache after it."""
    settings = {"META_CACHE": "1", "META_CACHE_DIR": str(folder / "cache")}
    completed = subprocess.run(
        [str(python), "-W", "error", "-c", _PROGRAM],
        env={**sandbox.environment(python), **settings}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    entries = {path.name for path in (folder / "cache").rglob("*.*")}
    return {**json.loads(completed.stdout), "entries": entries}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("operators")
    package = folder / _MODULE
    assert main(["op", "new", "squared", "--package", str(package)]) == 0
    python = sandbox.make(folder / "environment")
    _edit(package, 1.0)
    sandbox.install(python, package)
    first = _run(python, folder)
    _edit(package, 3.0)
    sandbox.install(python, package)
    return [first, _run(python, folder), _run(python, folder)]


@pytest.mark.parametrize("name", ["by_closure", "by_default", "by_helper"])
def test_an_edit_takes_effect_in_the_next_process(processes: list[dict[str, Any]], name: str) -> None:
    """Eagerly and in a program."""
    results = [process["results"][name] for process in processes]
    assert results == [[[1.0, 2.0]] * 2, [[3.0, 6.0]] * 2, [[3.0, 6.0]] * 2]


def test_an_edit_of_the_generated_compute_takes_effect(processes: list[dict[str, Any]]) -> None:
    for process, factor in zip(processes, (1.0, 3.0, 3.0), strict=True):
        assert process["results"]["squared"] == [[factor, 4 * factor]] * 2


def test_gradients_run(processes: list[dict[str, Any]]) -> None:
    """The formula reads the operand: 2 * dy * x."""
    assert [process["gradient"] for process in processes] == [[2.0, 4.0]] * 3


def test_processes_share_the_cache(processes: list[dict[str, Any]]) -> None:
    """The first two compile all kernels, eager and in the program; the third compiles none."""
    first, edited, unedited = (process["entries"] for process in processes)
    operators = 4
    assert len(first) > operators
    assert first < edited
    assert len(edited - first) > operators
    assert edited == unedited


def test_other_environments_lack_the_package(tmp_path: Path) -> None:
    python = sandbox.make(tmp_path / "environment")
    ask = "import meta; print(hasattr(meta.ops, 'separate_operators'))"
    completed = subprocess.run(
        [str(python), "-c", ask],
        env=sandbox.environment(python), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert completed.stdout == "False\n"
