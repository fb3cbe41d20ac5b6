"""Operators of installed packages: entry points of the group meta.operators, imported at the first unknown name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import meta
from meta import errors
from meta.errors import TypeInferenceError
from meta.op import plugins, registry

_MODULE = """
import meta
from meta.schema import Arg, Schema, Tensor

for name in ("installed_double", "installed_package::double"):
    meta.define(name, Schema("double", Arg("x", Tensor)), reference=lambda x: x * 2)(lambda x: x)
"""
_KIND = 'Tensor[(1,), "float32"]'
_TEXT = f"def main(%x: {_KIND}) -> ({_KIND},) {{\n  %y: {_KIND} = installed_package::double(%x)\n  (%y,)\n}}"
USES = {
    "meta": "meta.installed_double(meta.ones((1,))).tolist() == [2.0]",
    "ops": "meta.ops.installed_package.double(meta.ones((1,))).tolist() == [2.0]",
    "completion": "'installed_package' in dir(meta.ops) and dir(meta.ops.installed_package) == ['double']",
    "registry": "meta.op.registry.get('installed_package::double')",
    "text": f"'installed_package::double' in str(meta.ir.parser.parse({_TEXT!r}))",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that defines operators, and one whose module raises."""
    for name, module in (("working", _MODULE), ("broken", "1 / 0")):
        (tmp_path / f"{name}_operators.py").write_text(module)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[meta.operators]\n{name} = {name}_operators\n")
    return tmp_path


@pytest.mark.parametrize("use", USES)
def test_the_first_unknown_name_imports_the_plugins(site: Path, use: str) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(site)!r})
import meta
assert meta.softmax and meta.ops.softmax
assert "working_operators" not in sys.modules
assert {USES[use]}
assert meta.relu(meta.ones((1,))).tolist() == [1.0]
"""
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("PluginWarning: [plugins] 'broken' (broken_operators) of broken 1.0") == 1


_HELPERS = """
import meta

def rows_that_sum_to_one(x, axis):
    return meta.softmax(x, axis=axis)
"""


def _install(site: Path, root: str) -> None:
    """A package whose operators are in one module and other functions in another; `root` has a point in a package that
    several distributions share."""
    folder = site / root.replace(".", "/")
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "helpers.py").write_text(_HELPERS)
    (folder / "operators.py").write_text(_MODULE.replace("installed_", f"{root.rpartition('.')[2]}_"))
    metadata = site / f"{root}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {root}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[meta.operators]\n{root} = {root}.operators\n")


@pytest.fixture
def _loads_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plugins are loaded again; what this one defines is removed."""
    monkeypatch.setattr(plugins, "_started", set())
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(errors, "_operator_modules", ())
    before = {op.name for op in registry.all_ops()}
    yield
    for name in {op.name for op in registry.all_ops()} - before:
        meta.unregister(name)


@pytest.mark.usefixtures("_loads_anew")
@pytest.mark.parametrize("root", ["whole_package", "shared_by_several.whole_part"])
def test_the_whole_package_is_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """An error in a helper module is located at the line that called it, with the package's own line beside it."""
    _install(tmp_path, root)
    monkeypatch.syspath_prepend(tmp_path)
    helpers = import_module(f"{root}.helpers")

    def location() -> tuple[str, tuple[str, str]]:
        with pytest.raises(TypeInferenceError) as caught:
            helpers.rows_that_sum_to_one(meta.ones((2,)), 3)
        return caught.value.location, caught.value.within

    own = f"{helpers.__file__}:5"
    assert location() == (own, ("", ""))
    plugins.load(plugins.OPERATORS)
    where, within = location()
    assert where == f"{__file__}:{location.__code__.co_firstlineno + 2}"
    assert within == ("rows_that_sum_to_one", own)
    assert errors._operator_modules[-1] == f"{root}."


def test_the_list_of_operators_includes_plugins(site: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(site)!r})
from meta.cli import main
assert main(["ops", "--only", "working_operators", "--only", "installed_package::*"]) == 0
"""
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert completed.stdout == "user: installed_double, installed_package::double\n", completed.stderr
