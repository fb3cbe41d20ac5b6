"""The general path of an operator call, and the dictionaries in which the generated fast path finds runners.

A generated function looks up `run = cache[argument types and attributes]` and calls it. Steps that happen once
(binding, type inference, dispatch, building the kernel) are here, and end by putting a runner into that dictionary,
which changes of the operator's implementations empty. Traced symbols, active scopes and scalar operands also come here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from marshal import dumps
from operator import is_
from typing import Any, NoReturn, TypeVar, cast

from meta._generated.methods import Tensor
from meta.backend.eviction import on_eviction
from meta.device import Device
from meta.dim import SymDim, size_error
from meta.eager.ndarray import NDArray, asarray
from meta.eager.runners import Runner, build_runner
from meta.eager.tape import any_tracked, record
from meta.errors import ArgumentError, MetaError, TraceError
from meta.ir.expr import CallInfo
from meta.ir.type import Type, Value, flat_types
from meta.locks import new_lock
from meta.modes import modes, scopes
from meta.op.dispatch import load_family
from meta.op.implementation import on_change
from meta.op.registry import Op, as_type, check_registered
from meta.op.rules import first_tensor
from meta.schema._dsl import TensorLike
from meta.tree import is_sequence, leaves_of

F = TypeVar("F", bound=Callable[..., Any])

CACHE_LIMIT = 4096
"""Entries per operator; a program that meets more distinct shapes starts over, instead of growing for ever."""
TOTAL_LIMIT = 32768
"""Entries of all operators together, of about 0.5 KB each; beyond it all operators start over."""


class OpState:
    """The runners of one operator."""

    __slots__ = ("fast", "normal", "op", "revision", "scoped")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.fast: dict[Any, Runner] = {}
        """Runners by the key that the generated function computes; plain calls only (no scopes, no scalars)."""
        self.scoped: dict[Any, Runner] = {}
        """Runners by (raw arguments, dialect preference)."""
        self.normal: dict[Any, Runner] = {}
        """The runners of `scoped` whose raw arguments were in normal form."""
        self.revision = 0
        """How often the implementations of the operator have changed."""

    def forget(self) -> None:
        """Drop the runners; those that are being built are not remembered."""
        with _lock:
            self.revision += 1
            self.clear()

    def clear(self) -> None:
        """Drop the runners; those that are being built are remembered."""
        for cache in (self.fast, self.scoped, self.normal):
            cache.clear()

    def remember(self, cache: dict[Any, Runner], key: object, run: Runner, revision: int) -> None:
        """Put a runner into one of the dictionaries, unless the implementations have changed since `revision`."""
        if key is None:
            return
        with _lock:
            if revision != self.revision:
                return
            if len(cache) >= CACHE_LIMIT:
                cache.clear()
            make_room(1)
            _remembered[0] += 1
            cache[key] = run


_states: dict[str, OpState] = {}
_lock = new_lock("runners")
_remembered = [0]  # since all operators started over


def make_room(runners: int) -> None:
    """Drop the runners of all operators, unless so many more fit."""
    with _lock:
        if _remembered[0] + runners > TOTAL_LIMIT:
            _remembered[0] = 0
            for op_state in list(_states.values()):
                op_state.clear()


def _forget_runners(op: str | None) -> None:
    for op_state in list(_states.values()) if op is None else filter(None, [_states.get(op)]):
        op_state.forget()


on_change(_forget_runners)
on_eviction(lambda: _forget_runners(None))


def state(op: Op) -> OpState:
    """The one OpState of `op`. Raises RegistryError if the operator was redefined or unregistered."""
    op_state = _states.get(op.name)
    if op_state is None:
        op_state = _states.setdefault(op.name, OpState(op))
    if op_state.op is not op:
        check_registered(op)
        renew(op_state, op)
    return op_state


def renew(op_state: OpState, op: Op) -> None:
    """Let a state belong to `op`, which replaces its operator. Functions of the operator before find no runner any more
    and call `op` the general way."""
    op_state.forget()
    op_state.op = op
    op_state.fast, op_state.scoped, op_state.normal = {}, {}, {}


def invoke(op_state: OpState, *args: Any) -> Any:
    """Call an operator with arguments in schema order, not yet normalised.

    Returns an NDArray, a tuple of them, a Symbol (or tuple) while tracing, or a plain value for operators such as
    `shape`. Raises ArgumentError, TypeInferenceError, DeviceError, DispatchError."""
    op = op_state.op
    if scopes.active and has_numpy_arrays(args):
        args = converted(op, args)
    if scopes.active and modes.autocast is not None:
        args = modes.autocast(op, args)
    if scopes.active and modes.emit is not None:
        return modes.emit(op, op.schema.bind(op.name, args, {}))
    raw = raw_key(args)
    run = op_state.scoped.get(raw) if raw is not None and not modes.observers else None
    raw_args = args
    if run is None:
        # NumPy arrays in place of attributes stay, and are refused below.
        if raw is None and has_numpy_arrays(args) and not all(map(is_, arrays := converted(op, args), args)):
            return invoke(op_state, *arrays)
        args = op.schema.bind(op.name, args, {})
        for leaf in leaves_of(args):
            if isinstance(leaf, TensorLike) and not isinstance(leaf, NDArray):
                raise escaped(op.name, leaf)
        load_family(op.family)  # its registrations are no changes
        revision = op_state.revision
        prepare = _prepare if modes.profiler is None else modes.profiler.preparing(op.name, _prepare)
        run = prepare(op_state, args, raw, revision)
        if not callable(run):
            return run
        if raw is not None:
            if all(map(is_, args, raw_args)):
                op_state.remember(op_state.normal, raw, run, revision)
            elif not scopes.active and not op.schema.tensor_positions:  # gradients need the normal form
                op_state.remember(op_state.fast, fast_key(op, raw_args), run, revision)  # "cpu", [2, 3]
    if scopes.active and modes.profiler is not None:
        run = modes.profiler.timed(op, run)
    result = run(*[args[i] for i in op.schema.tensor_positions])
    if scopes.active and modes.anomalies is not None:
        modes.anomalies.check(op, args, result)
    if any_tracked(args):
        # A cached runner takes raw arguments; gradients take them in normal form.
        if raw_args is args and raw not in op_state.normal:
            args = op.schema.bind(op.name, args, {})
        return record(op.name, result, args)
    return result


def refuse(op_state: OpState, args: Sequence[Any], unknown: Mapping[str, Any]) -> NoReturn:
    """Raise ArgumentError for surplus arguments, and for keywords that an operator does not have."""
    op_state.op.schema.bind(op_state.op.name, () if unknown else args, unknown)
    raise AssertionError


def explained_sizes(op_state: OpState) -> Callable[[F], F]:
    """A decorator of functions that make arrays: `ones(4, 8, dtype="int64")` has a dtype twice, which Python refuses
    before the function runs."""

    def decorate(function: F) -> F:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if isinstance(error, MetaError):
                    raise
                unexplained = error
            op_state.op.schema.bind(op_state.op.name, args, kwargs)
            raise unexplained

        return cast(F, run)

    return decorate


def escaped(where: str, x: object) -> TraceError:
    """A tensor `x` of a trace, or of the transformation that `x.scope` names, after its end."""
    scope = getattr(x, "scope", None)
    if scope is None:
        problem, expected = "a symbol of a finished trace is used as an array", "arrays, outside of tracing"
        return TraceError(where, problem, expected, "return it from the traced function")
    problem = f"a tensor inside of {scope} is used after its end"
    return TraceError(where, problem, "results of the transformed function", "return it from the function")


def raw_key(args: tuple[Any, ...]) -> Any:
    """A key for arguments as they came, None when there is none (symbols, unhashable values).

    Not meta.tree: it runs in every call within a scope."""
    parts: list[Any] = [modes.dialects]
    for arg in args:
        if isinstance(arg, NDArray):
            parts.append(arg.type)
        elif isinstance(arg, TensorLike):
            return None
        elif isinstance(arg, (tuple, list)):
            inner = raw_key(tuple(arg))  # pyright: ignore[reportUnknownArgumentType]
            if inner is None:
                return None
            parts.append(inner)
        elif arg.__class__ is float:
            parts.append(dumps(arg, 2))  # 0.0 == -0.0, and NaN does not equal itself
        elif isinstance(arg, float):
            parts.append((arg.__class__, arg.hex()))
        elif isinstance(arg, complex):
            parts.append((arg.__class__, repr(arg)))  # 0j == -0j
        elif hasattr(arg, "tobytes"):
            if getattr(arg, "shape", None) != ():
                return None
            parts.append((arg.__class__, arg.dtype, arg.tobytes()))
        else:
            parts.append((arg.__class__, arg))
    key = tuple(parts)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def fast_key(op: Op, args: tuple[Any, ...]) -> Any:
    """The key that the generated function of `op` computes from normalised arguments (see meta.op.codegen); None
    when there is none (NaN, symbolic sizes)."""
    parts: list[Any] = []
    for arg, value in zip(op.schema.args, args, strict=True):
        if arg.type.role == "tensors":
            parts.append(tuple(t.type for t in value))
        elif arg.type.role != "attr":
            parts.append(None if value is None else value.type)
        elif arg.type.key == "items":
            try:
                parts.append(dumps(value, 2))
            except ValueError:
                return None
        elif value != value:
            return None
        else:
            parts.append((value or repr(value)) if arg.type.key == "float" else value)
            if arg.type.key != "value":
                parts.append(value.__class__)
    return parts[0] if len(parts) == 1 else tuple(parts)


def _has_scalar(op: Op, args: tuple[Any, ...]) -> bool:
    return any(
        arg.type.role == "scalar" and isinstance(value, (bool, int, float, complex))
        for arg, value in zip(op.schema.args, args, strict=True)
    )


def _prepare(op_state: OpState, args: tuple[Any, ...], raw: object, revision: int) -> Any:
    """Infer, dispatch and build; remember the runner. Returns the plain value of an operator that needs no kernel."""
    op = op_state.op
    for leaf in leaves_of(args):
        if isinstance(leaf, SymDim):
            raise size_error(op.name, leaf, "numbers, outside of tracing")
    types = tuple(map(as_type, args))
    out = op.infer(types)
    if isinstance(out, Value):
        return out.value
    if op.resolve is not None and not all(t.is_static for t in flat_types((out,))):
        run = _resolving(op_state, args)
    else:
        run = build_runner(CallInfo(op, types, out, device_of(args, out)))
    op_state.remember(op_state.scoped, raw, run, revision)
    if not scopes.active and not _has_scalar(op, args):
        op_state.remember(op_state.fast, fast_key(op, args), run, revision)
    return run


def _resolving(op_state: OpState, args: tuple[Any, ...]) -> Runner:
    """Compute the shape of a result that depends on values, then call again."""
    op, positions = op_state.op, op_state.op.schema.tensor_positions
    resolve = op.resolve
    assert resolve is not None
    attributes = [None if i in positions else arg for i, arg in enumerate(args)]

    def run(*tensors: object) -> Any:
        full = list(attributes)
        for i, tensor in zip(positions, tensors, strict=True):
            full[i] = tensor
        return invoke(op_state, *resolve(*full))

    return run


def device_of(args: tuple[Any, ...], out: Type) -> Device:
    """Where a call runs: where its first tensor is, else where its result shall be."""
    tensor = first_tensor((*map(as_type, args), out))
    if tensor is None:
        raise ArgumentError("dispatch", "no tensor among arguments and results")
    return tensor.device


# --- NumPy arrays as operands ----------------------------------------------------------------------------------------


def has_numpy_arrays(args: Sequence[Any]) -> bool:
    """Whether a NumPy array with dimensions is among `args`, or in a list of them."""
    return "numpy" in sys.modules and any(map(_is_array, leaves_of(tuple(args))))


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules["numpy"]
    return isinstance(value, numpy.ndarray) and value.ndim > 0


def converted(op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with NumPy arrays in place of tensors as arrays (see `as_arrays`)."""
    positions = op.schema.tensor_positions
    arrays = as_arrays([arg if i in positions else None for i, arg in enumerate(args)])
    return tuple(arrays[i] if i in positions else arg for i, arg in enumerate(args))


def as_arrays(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with NumPy arrays as arrays on the device of the first tensor, else on the CPU.

    Their memory is shared if it is compact and writable, and copied if a trace or a gradient keeps it."""
    tensors = [leaf for leaf in leaves_of(tuple(args)) if isinstance(leaf, Tensor)]
    device = tensors[0].device if tensors else "cpu"
    tracing = scopes.active and modes.trace is not None
    needs_copy = tracing or (modes.grad_enabled and any(isinstance(t, NDArray) and t.requires_grad for t in tensors))

    def convert(value: object) -> Any:
        if is_sequence(value):
            return [convert(item) for item in value] if any(map(_is_array, leaves_of(value))) else value
        return asarray(value, device=device, copy=needs_copy) if _is_array(value) else value

    return tuple(map(convert, args))
