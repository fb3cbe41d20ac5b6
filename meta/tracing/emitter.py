"""Operator calls recorded in a builder instead of run: what tracing and passes share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from meta.eager.ndarray import NDArray
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Constant, Var
from meta.ir.type import TupleType, Value
from meta.modes import modes, scopes
from meta.op.registry import Op
from meta.schema._types import TensorLike
from meta.tracing.symbol import Symbol
from meta.tree import map_leaves


class Emitter:
    """Records calls as a pass does, whose program has no state: arrays are constants."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record a call on normalised arguments. Returns a Symbol, a tuple of them, or the value of an operator that
        needs no kernel."""
        atoms = map_leaves(lambda arg: self.operand(op, arg) if isinstance(arg, TensorLike) else arg, args)
        call = self.builder.call_expr(op, atoms)
        return call.type.value if isinstance(call.type, Value) else self.result(self.builder.emit(call))

    def operand(self, op: Op, x: Any) -> Atom:
        """A tensor argument in the program."""
        del op
        return Constant(x, x.type) if isinstance(x, NDArray) else x.atom

    def result(self, var: Var) -> Any:
        """A Symbol for a tensor, or a tuple of them for the fields of a tuple."""
        if isinstance(var.type, TupleType):
            return tuple(self.result(self.builder.get_item(var, i)) for i in range(len(var.type.fields)))
        return Symbol(var)


@contextmanager
def recording(builder: Builder) -> Generator[Builder, None, None]:
    """Inside the block every operator call of this thread is emitted to `builder`, for a pass that builds a program:
    the gradient mode and autocast of the thread do not matter."""
    before = modes.grad_enabled, modes.autocast
    with emitting(Emitter(builder), None):
        modes.grad_enabled, modes.autocast = True, None
        try:
            yield builder
        finally:
            modes.grad_enabled, modes.autocast = before


@contextmanager
def emitting(emitter: Emitter, trace: Any) -> Generator[None, None, None]:
    """Inside the block operator calls of this thread go to `emitter`, and questions about gradients to `trace`."""
    before = modes.trace, modes.emit
    scopes.change(1)
    modes.trace, modes.emit = trace, emitter.emit
    try:
        yield
    finally:
        modes.trace, modes.emit = before
        scopes.change(-1)
