"""Packages that import their public names at the first use: type checkers and the interpreter see the same names."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import meta

ROOT = Path(meta.__file__).parent
PACKAGES = sorted(
    ".".join(("meta", *file.relative_to(ROOT).parent.parts))
    for file in ROOT.rglob("__init__.py")
    if "\n_HOMES" in file.read_text(encoding="utf-8")
)


def names_for_type_checkers(package: str) -> dict[str, str]:
    """Public name -> module, of the imports under TYPE_CHECKING."""
    tree = ast.parse(Path(import_module(package).__file__ or "").read_text(encoding="utf-8"))
    checked = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in checked for node in block.body if isinstance(node, ast.ImportFrom)]
    return {a.asname: node.module or "" for node in imports for a in node.names if a.asname}


def test_finds_the_packages() -> None:
    assert {"meta", "meta.autograd", "meta.nn", "meta.vm"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_names_that_are_imported(package: str) -> None:
    module = import_module(package)
    checked = names_for_type_checkers(package)
    # name -> module, or module -> names
    listed = {n for key, value in module._HOMES.items() for n in ((key,) if isinstance(value, str) else value)}
    assert listed <= set(checked)
    for name, home in checked.items():
        assert getattr(module, name) is getattr(import_module(home), name), f"{package}.{name}"
