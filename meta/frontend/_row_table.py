"""Tables of functions by the names of operators: to write meta's operators for another system, or to read its
operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

Row = Callable[..., Any]


class RowTable:
    """A function for each operator, by its name; the modules of a package enter them."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._rows: dict[str, Row] = {}
        self._loaded = False

    def row(self, *names: str) -> Callable[[Row], Row]:
        """Enter the decorated function for the operators called `names`. Each operator has one."""

        def enter(function: Row) -> Row:
            for name in names:
                assert name not in self._rows, name
                self._rows[name] = function
            return function

        return enter

    def rows(self) -> Mapping[str, Row]:
        """All rows; the first call imports their modules."""
        if not self._loaded:
            for module in iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")
            self._loaded = True
        return MappingProxyType(self._rows)
