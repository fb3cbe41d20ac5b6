"""Tables of rows: functions that convert operators, by the operators' names.

Each reader has a table of the other system's operators, and each writer a table of meta's. The modules of a package
fill it, with decorated functions, and with dicts of functions for rows of one expression:

    table = RowTable("meta.frontend.relax.ops")

    @table.row("nn.gelu")
    def gelu(call: OpCall) -> Any: ...

    table.enter({"nn.silu": lambda call: meta.silu(tensor(call, 0))})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
R = TypeVar("R")


class RowTable(Generic[R]):
    """Rows by the names of operators, several for an operator whose meaning changed with a version."""

    @overload
    def __init__(self: RowTable[Function], package: str) -> None: ...
    @overload
    def __init__(self, package: str, row_type: Callable[..., R]) -> None: ...
    def __init__(self, package: str, row_type: Callable[..., Any] | None = None) -> None:
        """package: its modules enter the rows; the first look-up imports them.
        row_type: makes a row of a name, the version that it begins with, a function, and the options by keyword that
            rows of the table have; by default, the row is the function."""
        self._package = package
        self._row_type: Callable[..., Any] = row_type or _function
        self._rows: dict[str, dict[int, R]] = {}
        self._loaded = False

    def row(self, *names: str, since: int = 1, **options: object) -> Callable[[F], F]:
        """Enter the decorated function for the operators called `names`, by default as the function is, from version
        `since` on."""

        def enter(function: F) -> F:
            self.enter(dict.fromkeys(names or (function.__name__,), function), since, **options)
            return function

        return enter

    def enter(self, functions: Mapping[str, Function], since: int = 1, **options: object) -> None:
        """Enter a function for each operator. An operator has one row for a version."""
        for name, function in functions.items():
            versions = self._rows.get(name, {})
            assert since not in versions, f"{name} has two rows for version {since}"
            versions[since] = self._row_type(name, since, function, **options)
            self._rows[name] = dict(sorted(versions.items(), reverse=True))

    def find(self, name: str, version: int = 1) -> R | None:
        """The row for an operator in a version, None if there is none."""
        return next((row for since, row in self.versions(name).items() if since <= version), None)

    def versions(self, name: str) -> Mapping[int, R]:
        """The rows of an operator by the version that each begins with, the newest first; empty without rows."""
        self._load()
        return self._rows.get(name, {})

    def rows(self) -> Mapping[str, R]:
        """The newest row of each operator."""
        self._load()
        return MappingProxyType({name: next(iter(versions.values())) for name, versions in self._rows.items()})

    def names(self) -> list[str]:
        """The names of all operators with rows, sorted."""
        self._load()
        return sorted(self._rows)

    def _load(self) -> None:
        if not self._loaded:
            for module in iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")
            self._loaded = True


def _function(name: str, since: int, function: Function) -> Function:
    return function
