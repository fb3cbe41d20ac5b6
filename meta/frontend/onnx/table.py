"""The table of ONNX's operators: the rows that the modules in `ops/` enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from meta.frontend.onnx.ops._row import ROWS, OperatorRow

STANDARD = frozenset({"", "ai.onnx"})
"""Names of the domain of the standard operators."""


def domain_of(name: str) -> str:
    """A domain as the table has it: "" for the standard operators."""
    return "" if name in STANDARD else name


def find(name: str, domain: str, version: int) -> OperatorRow | None:
    """The row for an operator in an opset of its domain, None if there is none."""
    return next((row for row in rows().get((domain, name), ()) if row.since <= version), None)


def first_opset(name: str, domain: str) -> int | None:
    """The first opset that an operator has a row for, None without rows."""
    versions = rows().get((domain, name))
    return versions[-1].since if versions else None


@cache
def rows() -> Mapping[tuple[str, str], Sequence[OperatorRow]]:
    """The rows of each operator by (domain, name), the newest opset's first."""
    package = import_module("meta.frontend.onnx.ops")
    for module in iter_modules(package.__path__):
        import_module(f"meta.frontend.onnx.ops.{module.name}")
    return ROWS
