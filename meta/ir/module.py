"""A program: functions by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from meta.errors import IRError, did_you_mean
from meta.ir.expr import FunctionExpr
from meta.ir.printer import to_text
from meta.records import record


def _no_functions() -> dict[str, FunctionExpr]:
    return {}


@record(eq=False)
class Module:
    """Functions by name. Immutable: `with_function` gives a new one. verified: whether `verify` has accepted it.
    contents: the result of `analysis.contents`, once it has been asked for."""

    functions: Mapping[str, FunctionExpr] = field(default_factory=_no_functions)
    verified: bool = field(default=False, init=False, repr=False)
    contents: Any = field(default=None, init=False, repr=False)

    def __getitem__(self, name: str) -> FunctionExpr:
        """The function called `name`; raises IRError when there is none."""
        function = self.functions.get(name)
        if function is None:
            names = ", ".join(self.functions) or "none"
            hint = did_you_mean(name, self.functions)
            raise IRError("module", f"there is no function '{name}'", f"one of {names}", hint)
        return function

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    @property
    def main(self) -> FunctionExpr:
        """The entry function; raises IRError when there is no "main"."""
        return self["main"]

    def with_function(self, name: str, function: FunctionExpr) -> Module:
        """This module with `function` added or replaced; the order of the others stays."""
        return Module({**self.functions, name: function})

    def without(self, *names: str) -> Module:
        """This module without the functions called `names`."""
        return Module({name: f for name, f in self.functions.items() if name not in names})

    def __str__(self) -> str:
        return to_text(self, data=False)
