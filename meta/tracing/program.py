"""Tracing: run a Python function on symbols and keep the program it performs (see meta.tracing)."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from operator import is_
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from meta.device import Device
from meta.dim import SymDim
from meta.eager.ndarray import NDArray, copied
from meta.errors import ArgumentError, MetaError, TraceError
from meta.ir.builder import Builder, Module
from meta.ir.expr import MUTATES, Constant, FunctionExpr, Var
from meta.ir.type import Sizes, TensorType, TupleType, Type, read_sizes
from meta.ir.visitor import substituted
from meta.modes import no_grad
from meta.schema._dsl import is_numpy_scalar
from meta.schema.annotations import explained
from meta.tracing.backward import DifferentiatedTrace
from meta.tracing.emitter import Draws, emitting
from meta.tracing.state import Held, LeftGradient, held
from meta.tracing.symbol import Symbol
from meta.tree import Tree, flatten, is_tuple, named_leaves

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A traced program and how to call it.

    module: "main" takes the input tensors, then the state, then an int64[2] random key for each of `random`; it returns
        the leaves of the result, then the new values of what it writes (`FunctionExpr.attrs[MUTATES]`: state, or an
        input).
    inputs: names of the input tensors, in order: paths such as `x` or `batch.0`.
    signature: the Python signature of the traced function, to bind calls by name.
    state: (name, array) of every array reached without being passed.  random: the keys that a call draws.
    containers: lists and dicts of the models in it, with what they held (see `changed`).
    result: the structure of the result.  revision: `revision()` at the time; when it has moved, trace again.
    modes: the models in it, each with whether it was in train mode.  tracked: which arrays of the state required
        gradients.
    left: the gradients that `backward` in the function leaves; they are no results of "main".
    constant: positions of the leaves of the result that no gradient flows from.
    conditions: sizes that are 0 or more where the program may run, and the errors of others.
    recorded: the parameters that are written with gradients.
    before: functions that a call runs first, on the host, which write to the state.
    """

    module: Module
    inputs: tuple[str, ...]
    signature: inspect.Signature
    state: tuple[tuple[str, NDArray], ...]
    random: tuple[Draws, ...]
    result: Tree
    revision: int
    containers: tuple[Held, ...] = ()
    left: tuple[LeftGradient, ...] = ()
    constant: frozenset[int] = frozenset()
    conditions: tuple[tuple[SymDim, MetaError], ...] = ()
    modes: tuple[tuple[weakref.ref[Any], bool], ...] = ()
    tracked: tuple[bool, ...] = ()
    recorded: frozenset[int] = frozenset()
    before: tuple[Callable[[], None], ...] = ()

    @property
    def main(self) -> FunctionExpr:
        return self.module.main

    def fits_modes(self) -> bool:
        """Whether the models are in the modes that they were traced in, and the same arrays require gradients."""
        models = ((model(), training) for model, training in self.modes)
        return all(model is None or model.training == training for model, training in models) and all(
            (x._node is not None) == tracked for (_, x), tracked in zip(self.state, self.tracked, strict=False)
        )


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)


class Traced(Generic[P, R]):
    """A function that can be recorded; see the module docstring. As a method decorator it binds like a method."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: Traced[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Traced[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else _BoundTraced(self.function, instance)

    def record(self, *args: object, **kwargs: object) -> Record:
        """The program of a call with arguments of these types. Arrays are not read; TensorTypes do as well."""
        return record(self.function, args, kwargs)

    def ir(self, *args: object, **kwargs: object) -> str:
        """The text of the recorded program."""
        return str(self.record(*args, **kwargs).module)


class _BoundTraced(Traced[..., Any]):
    """A traced method of one object; created at every access of the attribute, so it does as little as possible."""

    def __init__(self, function: Any, instance: Any) -> None:
        self.function = function.__get__(instance)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


@explained
def trace(function: Callable[P, R], *inputs: NoReturn) -> Traced[P, R]:
    """Make a function (or a Model's method) recordable; calling it still runs eagerly. Raises ArgumentError for inputs,
    which the call of the result takes."""
    if inputs:
        problem, remedy = f"{1 + len(inputs)} positional arguments", "pass inputs to the call: meta.trace(f)(x)"
        raise ArgumentError("trace", problem, "at most 1: function", remedy)
    return Traced(function)


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    names: Mapping[int, str] | None = None,
    containers: Sequence[Any] = (),
) -> Record:
    """Run `function` on symbols of the arguments' types and return its program.

    names: id(array) -> name, for arrays the function may reach.  containers: lists and dicts that decide what it does,
    besides the containers of the models that it calls. Plain Python arguments keep their values. Nests of
    tuples, lists and dicts go in and come out.
    Raises ArgumentError when the arguments do not fit the function, TraceError when it returns something other than
    nests of tensors and plain values, or needs the value of a tensor."""
    start = revision()
    signature, bound = _bind(function, args, kwargs)
    leaves, tree = flatten(dict(bound.arguments), (NDArray, Symbol, TensorType))
    builder = Builder()
    params = tuple(Var(name, _type_of(name, leaf)) for name, leaf in leaves)
    inputs = [*map(Symbol, params)]
    trace = DifferentiatedTrace(builder, _named_state(function) | dict(names or {}), inputs)
    trace.reached(containers)
    for symbol, (_, leaf) in zip(inputs, leaves, strict=True):
        if isinstance(leaf, NDArray) and leaf.requires_grad:
            trace.mark(symbol, leaf.is_leaf)
    with builder.function("main", params) as scope, emitting(trace, trace):
        call = inspect.BoundArguments(signature, tree.build(iter(inputs)))
        tensors, result = _results(function(*call.args, **call.kwargs))
        outputs = [trace.attached(value) for value in tensors]
        left = trace.left_gradients()
        constant = trace.constant_results(outputs)
        written = trace.written()
        scope.ret([*outputs, *(value for _, value in written)])
    draws = tuple(trace.keys.draws.values())
    all_params = (*params, *(s.var for s in trace.state.values()), *(d.var for d in draws))
    mutates = {len(outputs) + i: all_params.index(var) for i, (var, _) in enumerate(written)}
    traced = scope.function
    main = FunctionExpr(all_params, traced.body, {MUTATES: mutates} if mutates else {}, "main", traced.span)
    state = tuple((s.var.name, s.array) for s in trace.state.values())
    return Record(
        Module({"main": main}), tuple(p.name for p in params), signature, state, draws, result, start,
        tuple(trace.containers.values()), left, constant, tuple(trace.conditions),
        tuple((weakref.ref(model), training) for model, training in trace.modes.values()),
        tuple(x._node is not None for _, x in state), frozenset(map(all_params.index, trace.recorded)),
        tuple(trace.before),
    )  # fmt: skip


def _bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[inspect.Signature, inspect.BoundArguments]:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TraceError("trace", f"{name} has no signature", "Python functions", "wrap it in one") from None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(name, str(error), f"{signature}") from None
    bound.apply_defaults()
    return signature, bound


PLAIN = (bool, int, float, complex, str, bytes, type(None), SymDim, Device)
"""Classes that a traced function may return besides tensors; the value is the same in every call of the program."""


def _results(result: object) -> tuple[list[Any], Tree]:
    leaves, tree = flatten(result, (Symbol, NDArray))
    for value in tree.statics():
        if not (isinstance(value, PLAIN) or is_numpy_scalar(value)):
            raise TraceError(
                "trace",
                f"a {type(value).__name__} is returned",
                "tensors, numbers, strings, None, and tuples, lists and dicts of them",
                "return its tensors",
            )
    return [value for _, value in leaves], tree


def _named_state(function: Callable[..., Any]) -> dict[int, str]:
    """Names of the arrays that the models and optimizers around `function` hold (self, closure and globals)."""
    inner = inspect.unwrap(function)
    out = state_names(getattr(inner, "__self__", None))
    try:
        variables = inspect.getclosurevars(getattr(inner, "__func__", inner))
    except TypeError:
        return out
    for name, value in (*variables.nonlocals.items(), *variables.globals.items()):
        for key, path in _names_in(name, value):
            out.setdefault(key, path)
    return out


_WIDEST = 1000
"""Items of the largest container around a traced function that is searched for arrays to name."""


def _names_in(name: str, value: object) -> Iterator[tuple[int, str]]:
    for path, leaf in named_leaves(value, name=name, widest=_WIDEST):
        if isinstance(leaf, NDArray):
            yield id(leaf), path
        else:
            yield from ((key, f"{path}.{inner}") for key, inner in state_names(leaf).items())


def state_names(owner: object) -> dict[int, str]:
    """id(array) -> dotted name for the arrays of a Model, an optimizer, or anything else with `named_state()`."""
    entries: Callable[[], Iterator[tuple[str, NDArray]]] | None = getattr(owner, "named_state", None)
    return {id(x): name for name, x in entries()} if entries is not None and not isinstance(owner, type) else {}


InputType = Callable[[str, TensorType], TensorType]
"""The path of an input and its own type -> the type that it is recorded with."""


class _InputTypes(threading.local):
    function: InputType | None = None


_input_types = _InputTypes()


@contextmanager
def input_types(function: InputType | None) -> Generator[None, None, None]:
    """Inside the block, functions are recorded for inputs whose types differ from their arguments'."""
    before, _input_types.function = _input_types.function, function
    try:
        yield
    finally:
        _input_types.function = before


def _type_of(name: str, leaf: Any) -> Type:
    kind = leaf if isinstance(leaf, TensorType) else leaf.type
    return _input_types.function(name, kind) if _input_types.function is not None else kind


def check_inputs(where: str, names: Sequence[str], types: Sequence[Type], arrays: Sequence[Any]) -> Sizes:
    """Raise ArgumentError unless each array, or tuple of arrays, has the type of its parameter; returns the symbolic
    sizes."""
    return read_sizes(where, names, types, list(map(_type_of_input, arrays)))


def _type_of_input(value: Any) -> Type:
    return TupleType(tuple(map(_type_of_input, value))) if is_tuple(value) else value.type


# When a record does not hold any more: a model changed, or one of its lists and dicts did.


def changed(containers: Sequence[Held]) -> bool:
    """Whether a list or dict of a model, as a program was traced through it, holds other objects now."""
    for container, then in containers:
        now = held(container)[1]
        if len(now) != len(then) or not all(map(is_, now, then)):
            return True
    return False


_revisions = count(1)
_revision = [0]
_change = [0]


def revision() -> int:
    """A number that changes with every change of a model and of the mode of one (see `last_change`)."""
    return _revision[0]


def last_change() -> int:
    """The `revision()` since which models have changed their modes only: records from before it are stale, records from
    then on hold in the modes that they were traced in (see `Record.fits_modes`)."""
    return _change[0]


def invalidate() -> None:
    """Make every record stale: a model has changed (an attribute was replaced)."""
    _change[0] = _revision[0] = next(_revisions)


def change_mode() -> None:
    """The mode of a model has changed, from training to inference or back."""
    _revision[0] = next(_revisions)


def frozen(record: Record) -> Record:
    """The record with the arrays of the state that it only reads as constants with the values of the moment."""
    main, first = record.main, len(record.inputs)
    mutates: dict[int, int] = main.attrs.get(MUTATES, {})
    read = [i for i in range(len(record.state)) if first + i not in mutates.values()]
    with no_grad():
        values = {main.params[first + i]: copied(record.state[i][1].detach()) for i in read}
    constants = {var: Constant(value, value.type, var.span) for var, value in values.items()}
    params = tuple(p for p in main.params if p not in constants)
    places = {result: params.index(main.params[i]) for result, i in mutates.items()}
    body = substituted(replace(main, params=()), constants).body
    new = replace(main, params=params, body=body, attrs={**main.attrs, **({MUTATES: places} if mutates else {})})
    kept = [i for i in range(len(record.state)) if i not in read]
    positions = {main.params.index(p): i for i, p in enumerate(params)}
    return replace(
        record,
        module=record.module.with_function("main", new),
        state=tuple(record.state[i] for i in kept),
        tracked=tuple(record.tracked[i] for i in kept if i < len(record.tracked)),
        recorded=frozenset(positions[i] for i in record.recorded),
    )
