"""Operator calls recorded in a builder instead of run: what tracing and passes share."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from meta.dim import SymDim, size_error
from meta.eager.ndarray import NDArray
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Call, Constant, Var, arg_types
from meta.ir.type import TensorType, TupleType, Value, promoted_dtype
from meta.modes import modes, scopes
from meta.op.registry import Op, as_type, get
from meta.schema._types import TensorLike
from meta.tracing.random_keys import Body
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of


class Emitter:
    """Records calls as a pass does, whose program has no state: arrays are constants."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record a call on normalised arguments. Returns a Symbol, a tuple of them, or the value of an operator that
        needs no kernel. A size in place of a tensor is a 0-d tensor of the dtype that the operator computes in."""
        if any(isinstance(arg, SymDim) for arg in args):
            args = self._with_size_tensors(op, args)
        atoms = self._atoms(op, args)
        kind = op.infer(arg_types(atoms))
        if isinstance(kind, Value):
            return kind.value
        return self.result(self.builder.emit(Call(op, atoms, kind, self.builder.next_span())))

    def _atoms(self, op: Op, arg: Any) -> Any:
        """Arguments with atoms in place of tensors, at every depth."""
        if isinstance(arg, (tuple, list)):
            return tuple([self._atoms(op, item) for item in arg])  # pyright: ignore[reportUnknownVariableType]
        return self.operand(op, arg) if isinstance(arg, TensorLike) else arg

    def _with_size_tensors(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        operands = op.schema.tensor_positions
        types: list[TensorType] = [as_type(leaf) for leaf in leaves_of(args) if isinstance(leaf, TensorLike)]
        numbers = [args[i] for i in operands if isinstance(args[i], (bool, int, float))]

        def operand(size: Any) -> Any:
            if not types:
                raise size_error(op.name, size, "a tensor operand")
            return self.emit(get("full"), ((), size, promoted_dtype(*types, *numbers, 1), types[0].device))

        return tuple(operand(a) if i in operands and isinstance(a, SymDim) else a for i, a in enumerate(args))

    def operand(self, op: Op, x: Any) -> Atom:
        """A tensor argument in the program."""
        del op
        return Constant(x, x.type) if isinstance(x, NDArray) else x.atom

    def value(self, x: Any, where: str) -> Atom:
        """A tensor as an operand of a conditional or a loop. where: the function that errors name."""
        del where
        return Constant(x, x.type) if isinstance(x, NDArray) else x.atom

    def nested(self, where: str, body: Body | None = None, params: Sequence[Var] = ()) -> AbstractContextManager[None]:
        """The scope of a branch, or of the body of a loop with parameters."""
        del where, body, params
        return nullcontext()

    def key_stacks(self, body: Body, reverse: bool) -> list[Atom]:
        """The random keys for the parameters that tracing added to the body of a loop, stacked by step."""
        del body, reverse
        return []

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
    before = modes.trace, modes.emit, modes.transform
    scopes.change(1)
    modes.trace, modes.emit, modes.transform = trace, emitter.emit, None
    try:
        yield
    finally:
        modes.trace, modes.emit, modes.transform = before
        scopes.change(-1)


def current_emitter() -> Emitter:
    """The emitter to which operator calls of this thread go; inside of `recording` or a trace."""
    emit: Any = modes.emit
    return emit.__self__
