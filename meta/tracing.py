"""Tracing: run a Python function on symbols and keep the program it performs.

    @meta.trace
    def step(x, target):
        loss = model(x, target)
        loss.backward()
        optimizer.step()
        return loss

The traced function still runs eagerly when called; `record` gives its program, which is what `meta.vm.compile` and
the passes take. Arrays that the function reaches without being given them (parameters, buffers, optimizer state)
become parameters of the program that follow its inputs, under the names their models give them; arrays that it writes
in place become results that replace those parameters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from meta.device import CPU, Device
from meta.errors import TraceError, message
from meta.ir.builder import Builder
from meta.ir.expr import MUTATES, Atom, Constant, Function, Var
from meta.ir.module import Module
from meta.ir.type import TensorType, Type, tensor_type
from meta.ndarray import NDArray
from meta.scope import modes, scopes
from meta.symbol import Symbol
from meta.tree import Tree, flatten


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A traced program and how to call it.

    module: "main" takes the input tensors, then the state, then (when `random`) an int64[2] random key; it returns the
        leaves of the result, then the new values of the state it writes (`Function.attrs[MUTATES]`).
    inputs: names of the input tensors, in order.
    signature: the Python signature of the traced function, to bind calls by name.
    state: (name, array) of every array reached without being passed.  random: how many random keys a call draws.
    result: the structure of the result.  revision: `revision()` at the time; when it has moved, trace again.
    """

    module: Module
    inputs: tuple[str, ...]
    signature: inspect.Signature
    state: tuple[tuple[str, NDArray], ...]
    random: int
    result: Tree
    revision: int

    @property
    def main(self) -> Function:
        return self.module.main


_revision = [0]


def revision() -> int:
    """Counts the changes of models (an attribute replaced, train or infer mode) that make records stale."""
    return _revision[0]


def invalidate() -> None:
    """Make every record stale."""
    _revision[0] += 1


class Trace:
    """The state of a trace in progress: which variable stands for which array, and what was written."""

    def __init__(self, builder: Builder, names: Mapping[int, str]) -> None:
        self.builder = builder
        self.names = names
        self.state: dict[int, tuple[str, NDArray, Var]] = {}
        self.values: dict[int, Atom] = {}
        self.grads: dict[int, tuple[NDArray, Any]] = {}
        self.keys = 0
        self.key: Var | None = None
        self.backwards: list[tuple[Atom, Symbol]] = []
        """Every `y.backward(dy)` so far: the tensor and its incoming gradient."""

    def atom(self, x: NDArray) -> Atom:
        """The present value of an array in the program."""
        if id(x) not in self.state:
            name = self.names.get(id(x)) or f"state{len(self.state)}"
            var = Var(name, x.type)
            self.state[id(x)] = (name, x, var)
            self.values[id(x)] = var
        return self.values[id(x)]

    def write(self, x: NDArray, value: Atom) -> None:
        """`x` is overwritten with `value` from here on."""
        self.atom(x)
        self.values[id(x)] = value

    def written(self) -> list[tuple[Var, Atom]]:
        """The state parameters that the program writes, each with its last value."""
        return [(var, self.values[key]) for key, (_, _, var) in self.state.items() if self.values[key] is not var]

    def set_grad(self, x: NDArray, gradient: Symbol) -> None:
        """Accumulate a symbolic gradient into `x.grad` until the trace ends."""
        if id(x) not in self.grads:
            self.grads[id(x)] = (x, x.grad)
            x.grad = None
        x.grad = gradient if x.grad is None else x.grad + gradient  # type: ignore[assignment]

    def restore_grads(self) -> None:
        for x, before in self.grads.values():
            x.grad = before

    def random_key(self, device: Device | str = CPU) -> Symbol:
        """A key for a random operator: the program's key with its own offset added."""
        import numpy as np

        from meta._generated.functions import add, device_copy
        from meta.ndarray import array

        if self.key is None:
            self.key = Var("key", tensor_type((2,), "int64"))
        offset = Constant(array(np.array([0, self.keys], np.int64)), self.key.type)  # type: ignore[arg-type]
        self.keys += 1
        drawn: Symbol = add(Symbol(self.key), Symbol(offset))
        return drawn if str(device) == "cpu" else device_copy(drawn, device)


@contextmanager
def recording(builder: Builder, trace: Trace | None = None) -> Generator[Builder, None, None]:
    """Inside the block every operator call of this thread is emitted to `builder` instead of executed."""
    before = modes.trace
    scopes.change(1)
    modes.trace = trace
    try:
        with builder:
            yield builder
    finally:
        modes.trace = before
        scopes.change(-1)


class Traced:
    """A function that can be recorded; see the module docstring. As a method decorator it binds like a method."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _BoundTraced(self, instance)

    def record(self, *args: Any, **kwargs: Any) -> Record:
        """The program of a call with arguments of these types. Arrays are not read; TensorTypes may stand for them."""
        return record(self.function, args, kwargs)

    def ir(self, *args: Any, **kwargs: Any) -> str:
        """The text of the recorded program."""
        return str(self.record(*args, **kwargs).module)


class _BoundTraced(Traced):
    """A traced method of one object."""

    def __init__(self, method: Traced, instance: Any) -> None:
        super().__init__(method.function.__get__(instance))


def trace(function: Callable[..., Any]) -> Traced:
    """Make a function (or a Model's method) recordable; calling it still runs eagerly."""
    return Traced(function)


def record(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Mapping[int, str] | None = None
) -> Record:
    """Run `function` on symbols of the arguments' types and return its program.

    names: id(array) -> name, for arrays the function may reach. Plain Python arguments keep their values.
    Raises TraceError when the function returns something other than nests of tensors and plain values."""
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    leaves, tree = flatten(dict(bound.arguments), _is_input)
    builder = Builder()
    params = tuple(Var(name.replace(".", "_"), _type_of(leaf)) for name, leaf in leaves)
    trace = Trace(builder, dict(names or {}) | _named_state(function))
    start = revision()
    with builder.function("main", params) as scope, recording(builder, trace):
        try:
            nest = tree.build(iter([Symbol(p) for p in params]))
            call = inspect.BoundArguments(signature, nest)  # type: ignore[arg-type]
            result = function(*call.args, **call.kwargs)
        finally:
            trace.restore_grads()
        found, result_tree = flatten(result, lambda v: isinstance(v, (Symbol, NDArray)))
        outputs = [_result_atom(trace, value) for _, value in found]
        written = trace.written()
        results = [*outputs, *(value for _, value in written)]
        scope.ret(results[0] if len(results) == 1 else results)
    state = tuple((name, x) for name, x, _ in trace.state.values())
    all_params = (*params, *(var for _, _, var in trace.state.values()), *((trace.key,) if trace.key else ()))
    mutates = {len(outputs) + i: all_params.index(var) for i, (var, _) in enumerate(written)}
    made = scope.function
    main = Function(all_params, made.body, {MUTATES: mutates} if mutates else {}, "main", made.span)
    return Record(Module({"main": main}), tuple(p.name for p in params), signature, state, trace.keys, result_tree, start)


def _named_state(function: Callable[..., Any]) -> dict[int, str]:
    """Names of the arrays that the models and optimizers around `function` hold (closure, globals and self)."""
    inner = inspect.unwrap(function)
    owner = getattr(inner, "__self__", None)
    code = getattr(inner, "__func__", inner)
    try:
        variables = inspect.getclosurevars(code)
        reached = {**variables.globals, **variables.nonlocals}
    except TypeError:
        reached = {}
    out: dict[int, str] = {}
    for name, value in reached.items():
        out |= {i: f"{name}.{n}" for i, n in state_names(value).items()}
        if isinstance(value, NDArray):
            out[id(value)] = name
    return out | state_names(owner)


def state_names(owner: Any) -> dict[int, str]:
    """id(array) -> dotted name for the arrays of a Model, an optimizer, or anything else with `named_state()`."""
    named = getattr(owner, "named_state", None)
    return {id(x): name for name, x in named()} if callable(named) and not isinstance(owner, type) else {}


def _is_input(value: Any) -> bool:
    return isinstance(value, (NDArray, Symbol, TensorType))


def _type_of(leaf: Any) -> Type:
    return leaf if isinstance(leaf, TensorType) else leaf.type


def _result_atom(trace: Trace, value: Any) -> Atom:
    if isinstance(value, NDArray):
        return trace.atom(value)
    if isinstance(value.atom, (Var, Constant)):
        return value.atom
    raise TraceError(message("trace", f"{value!r} is returned", "tensors computed in the traced function"))
