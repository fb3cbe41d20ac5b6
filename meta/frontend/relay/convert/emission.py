"""The program being built."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from meta.frontend.relay.convert.values import ReferenceCell, Value
from meta.ir.builder import BlockScope, Builder
from meta.ir.expr import Atom, FunctionExpr, Var
from meta.ir.type import TupleType
from meta.tracing import recording
from meta.tracing.symbol import Symbol


class Emission:
    """The functions and values that conversion has emitted, to which later emissions refer.

    builder: emits to the innermost open block.  functions: the functions of the module so far, without "main".
    references: all references, in the order of their creation.
    """

    def __init__(self) -> None:
        self.builder = Builder(caller_spans=False)
        self.functions: dict[str, FunctionExpr] = {}
        self.references: list[ReferenceCell] = []
        # Local functions by what they were emitted for, one dict for each open block.
        self._closures: list[dict[tuple[Any, ...], Var]] = [{}]

    def closure(self, key: tuple[Any, ...]) -> Var | None:
        """The variable of a local function emitted in an open block; None if there is none."""
        for closures in reversed(self._closures):
            if key in closures:
                return closures[key]
        return None

    def add_closure(self, key: tuple[Any, ...], var: Var) -> None:
        self._closures[-1][key] = var

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Local functions emitted inside are visible inside only."""
        self._closures.append({})
        try:
            yield
        finally:
            self._closures.pop()

    @contextmanager
    def block(self) -> Generator[BlockScope, None, None]:
        """A block of a conditional."""
        with self.scope(), self.builder.block() as block:
            yield block

    @contextmanager
    def module_function(self) -> Generator[None, None, None]:
        """Emit to a builder that sees nothing of the function being built, then continue with that function."""
        builder, self.builder = self.builder, Builder(caller_spans=False)
        closures, self._closures = self._closures, [{}]
        try:
            with recording(self.builder):
                yield
        finally:
            self.builder, self._closures = builder, closures

    def packed(self, value: Value) -> Atom:
        """A tensor, or nested tuples of tensors, as one atom."""
        if isinstance(value, Symbol):
            return value.atom
        return self.builder.tuple([self.packed(field) for field in value])

    def unpacked(self, var: Var) -> Value:
        """The tensor, or the nested tuples of tensors, in a variable."""
        if isinstance(var.type, TupleType):
            return tuple(self.unpacked(self.builder.get_item(var, i)) for i in range(len(var.type.fields)))
        return Symbol(var)
