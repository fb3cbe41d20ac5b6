"""Operator calls recorded in a builder instead of run, which tracing and passes share; and the random keys of a
program: parameters that every call fills with fresh keys of their generators."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import Any

import meta
from meta.backend.memory import allocation, numpy_arrays
from meta.device import Device
from meta.device import device as parse_device
from meta.dim import SymDim, size_error
from meta.dim_expressions import SizeNumber
from meta.dtype import accumulation_dtype, is_complex, is_float, real_dtype
from meta.eager.ndarray import NDArray
from meta.errors import TraceError
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Call, Constant, Var, arg_types
from meta.ir.type import TensorType, TupleType, Value, flat_types, promoted_dtype, tensor_type
from meta.modes import modes, scopes
from meta.op.decomposition import decompositions
from meta.op.registry import Op, as_type, get
from meta.records import mutable, record
from meta.schema._dsl import TensorLike
from meta.tracing.symbol import Symbol
from meta.tree import is_sequence, leaves_of, with_leaves

_KEY = "key"


class Emitter:
    """Records calls as a pass does, whose program has no state: arrays are constants."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record a call on normalised arguments. Returns a Symbol, a tuple of them, or the value of an operator that
        needs no kernel. A size in place of a tensor is a 0-d tensor of the dtype that the operator computes in."""
        if any(isinstance(arg, (SymDim, SizeNumber)) for arg in args):
            args = self._with_size_tensors(op, args)
        atoms = self._atoms(op, args)
        kind = op.infer(arg_types(atoms))
        if isinstance(kind, Value):
            return kind.value
        return self.result(self.builder.emit(Call(op, atoms, kind, self.builder.next_span())))

    def _atoms(self, op: Op, arg: Any) -> Any:
        """Arguments with atoms in place of tensors, at every depth."""
        if is_sequence(arg):
            return tuple([self._atoms(op, item) for item in arg])
        return self.operand(op, arg) if isinstance(arg, TensorLike) else arg

    def _with_size_tensors(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        operands = op.schema.tensor_positions
        types: list[TensorType] = [as_type(leaf) for leaf in leaves_of(args) if isinstance(leaf, TensorLike)]
        numbers = [args[i] for i in operands if isinstance(args[i], (bool, int, float))]

        def operand(size: Any) -> Any:
            if not types:
                raise size_error(op.name, size, "a tensor operand")
            device = types[0].device
            if isinstance(size, SymDim):  # libraries fill complex tensors, with plain numbers alone
                dtype = promoted_dtype(*types, *numbers, 1)
                value = self.emit(get("full"), ((), size, real_dtype(dtype), device))
                return self.emit(get("cast"), (value, dtype)) if is_complex(dtype) else value
            return meta.cast(
                self._number(size, device), promoted_dtype(*types, *numbers, 1 if size.is_integer else 1.0)
            )

        is_size = (SymDim, SizeNumber)
        return tuple(operand(a) if i in operands and isinstance(a, is_size) else a for i, a in enumerate(args))

    def _number(self, number: Any, device: Device) -> Any:
        """A number computed of sizes as a 0-d tensor of float64."""
        if not isinstance(number, SizeNumber):
            return meta.full((), number, "float64", device)
        return getattr(meta, number.function)(*(self._number(each, device) for each in number.operands))

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


def emit_decomposition(builder: Builder, call: Call, *, wide: bool = False) -> Any:
    """Emit the decomposition of a call to `builder`. Returns the atom of its result, a tuple of them for an operator
    with several; None if no decomposition covers the call.

    wide: half precisions are computed in float32, as kernels do; the casts are written for other dtypes as well, so
    that mixed precision keeps the dtype."""
    decomposition = decompositions(call.op.family).get(call.op_name) if isinstance(call.op, Op) else None
    if decomposition is None:
        return None

    def operand(leaf: Any) -> Any:
        if not isinstance(leaf, (Var, Constant)):
            return leaf
        x = Symbol(leaf)
        return meta.cast(x, accumulation_dtype(x.dtype)) if wide and decomposition.wide and is_float(x.dtype) else x

    with recording(builder):
        results = decomposition.function(*with_leaves(call.args, list(map(operand, leaves_of(call.args)))))
        if results is None:
            return None
        kinds: list[Any] = flat_types((call.type,))
        symbols = zip(leaves_of(results), kinds, strict=True)
        cast = [y if y.dtype == kind.dtype else meta.cast(y, kind.dtype) for y, kind in symbols]
    return with_leaves(results, [y.atom for y in cast])


@contextmanager
def emitting(emitter: Emitter, trace: object) -> Generator[None, None, None]:
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


# Random keys.


@mutable
class Draws:
    """The random keys that a program, or one step of a loop, takes from one generator: a parameter with the first one,
    and the number of keys that a call draws. generator: a meta.random.Generator, None for the default one."""

    generator: Any
    var: Var
    count: int = 0


def is_key(param: Var) -> bool:
    """Whether a parameter of a program holds a random key."""
    return param.name.partition(":")[0] == _KEY


@record
class Body:
    """The body of a loop that is traced. where: the function that errors name.  steps: their number, None where it is
    not known before the program runs.  draws: one step's draws, by generator and device."""

    where: str
    steps: int | None
    draws: dict[Any, Draws] = field(default_factory=dict[Any, Draws])

    @property
    def params(self) -> tuple[Var, ...]:
        """The parameters of the body that have a step's first keys."""
        return tuple(draws.var for draws in self.draws.values())


class RandomKeys:
    """The keys of a trace. params: the trace's parameters, to which the keys' parameters are added."""

    def __init__(self, params: set[Var]) -> None:
        self.draws: dict[int, Draws] = {}
        self.bodies: list[Body] = []
        self._params = params

    def key(self, device: Device | str, generator: object, count: int) -> Symbol:
        """A key for a random operator: the first key of the program, or of a step, with an offset; `count` offsets are
        reserved.

        Raises TraceError in a loop whose number of steps is not known."""
        import numpy as np

        target = parse_device(device)
        draws = self._of_step(self.bodies[-1], generator, target) if self.bodies else self._of_program(generator)
        first = Symbol(draws.var)
        placed = first if first.device == target else meta.device_copy(first, target)
        key = _offset(placed, np.array([0, draws.count], np.int64), target)
        draws.count += count
        return key

    def stacks(self, body: Body, reverse: bool) -> list[Symbol]:
        """The first keys of all steps of a loop, stacked in the order of its elements, for each parameter of the body.
        Steps that run one after the other take one key after the other, as in eager code."""
        import numpy as np

        steps = range(body.steps or 0)
        order: Sequence[int] = steps[::-1] if reverse else steps
        out: list[Symbol] = []
        for draws in body.draws.values():
            kind: Any = draws.var.type
            device: Device = kind.device
            first = self.key(device, draws.generator, len(steps) * draws.count)
            offsets = np.zeros((len(order), 2), np.int64)
            offsets[:, 1] = draws.count * np.array(order, np.int64)
            out.append(_offset(first, offsets, device))
        return out

    def _of_program(self, generator: object) -> Draws:
        draws = self.draws.get(id(generator))
        if draws is None:
            name = f"{_KEY}:{len(self.draws)}" if generator is not None else _KEY
            draws = self.draws[id(generator)] = Draws(generator, Var(name, tensor_type((2,), "int64")))
            self._params.add(draws.var)
        return draws

    def _of_step(self, body: Body, generator: object, device: Device) -> Draws:
        if body.steps is None:
            raise TraceError(
                body.where,
                "random numbers are drawn in a loop whose number of steps is not known before it runs",
                "loops with a fixed number of steps: a key is reserved for each step",
                "pass max_steps=..., or give scan a length that is not symbolic",
            )
        draws = body.draws.get((id(generator), device))
        if draws is None:
            draws = body.draws[id(generator), device] = Draws(generator, Var(_KEY, tensor_type((2,), "int64", device)))
            self._params.add(draws.var)
        return draws


def _offset(key: Symbol, offset: object, device: Device) -> Symbol:
    """A key moved by an offset: int64 of shape (2,), or (n, 2) for a stack of keys."""
    constant = _constant(offset, device)
    moved: Symbol = meta.add(key, Symbol(Constant(constant, constant.type)))
    return moved


def _constant(host: Any, on: Device) -> NDArray:
    """An array on a device, created outside of the trace."""
    kind = tensor_type(host.shape, str(host.dtype), on)
    data = allocation.empty(host.shape, str(host.dtype), on)
    allocation.copy_into(numpy_arrays.from_numpy(host), data)
    return NDArray(data, kind)
