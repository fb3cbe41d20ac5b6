"""The modules of this package's dialects: one for each family of operators, imported when one of its operators is first
dispatched or changed."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Final

from meta.collection import without_collection
from meta.locks import new_lock

BUILT_IN: Final[tuple[str, ...]] = ("cudnn", "torch", "triton", "tvm", "reference")
"""Dialects of this package: packages under meta/op/dialect, each with a `DIALECT` and one module per family."""

_loaded: set[tuple[str, str]] = set()
"""(dialect, family) that need no import any more."""
_lock = new_lock("dialects")


def load(dialect: str, family: str) -> None:
    """Import the module of a dialect for a family of operators, if it exists and this machine can use the dialect."""
    if (dialect, family) in _loaded:
        return
    with _lock, without_collection():
        package = f"meta.op.dialect.{dialect}"
        if family in _families_of(package) and import_module(package).DIALECT.unavailable() is None:
            import_module(f"{package}.{family}")
        _loaded.add((dialect, family))


@cache
def _families_of(package: str) -> frozenset[str]:
    """The families for which a dialect has a module; none for one that is not part of this installation."""
    if find_spec(package) is None:
        return frozenset()
    return frozenset(module.name for module in iter_modules(import_module(package).__path__))


def load_before_change(dialect: str, family: str) -> None:
    """As `load`, for a change from outside of the module. The module's own registrations find it among those that are
    being imported, and take no lock, which another thread that imports it may hold."""
    if dialect in BUILT_IN and f"meta.op.dialect.{dialect}.{family}" not in sys.modules:
        load(dialect, family)


def forget() -> None:
    """Look for modules again: a dialect may have become usable."""
    _loaded.clear()
