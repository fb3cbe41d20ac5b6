"""The table of ONNX's operators: the rows that the modules in `ops/` enter."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from meta.frontend.onnx.ops._row import ROWS, Row

STANDARD = frozenset({"", "ai.onnx"})
"""Names of the domain of the standard operators."""


def domain_of(name: str) -> str:
    """A domain as the table has it: "" for the standard operators."""
    return "" if name in STANDARD else name


def find(name: str, domain: str, version: int) -> Row | None:
    """The row for an operator in an opset of its domain, None if there is none."""
    _load()
    return next((row for row in ROWS.get((domain, name), ()) if row.since <= version), None)


def first_opset(name: str, domain: str) -> int | None:
    """The first opset that an operator has a row for, None without rows."""
    _load()
    rows = ROWS.get((domain, name))
    return rows[-1].since if rows else None


def supported() -> list[tuple[str, str]]:
    """(domain, name) of all operators that have a row, sorted."""
    _load()
    return sorted(ROWS)


@cache
def _load() -> None:
    package = import_module("meta.frontend.onnx.ops")
    for module in iter_modules(package.__path__):
        import_module(f"meta.frontend.onnx.ops.{module.name}")
