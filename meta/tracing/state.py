"""A trace in progress: the variable of each array that it reached, what was written, and where gradients go."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import meta
from meta.device import CPU, Device
from meta.dim import SymDim
from meta.eager.gradient_graph import LEAF_REMEDY
from meta.eager.inplace import fitted
from meta.eager.ndarray import NDArray
from meta.errors import GradientError, MetaError, TraceError, TypeInferenceError
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Call, Constant, Var
from meta.modes import modes
from meta.op.registry import Op, get
from meta.parts import mark_part
from meta.records import record
from meta.tracing.differentiate import reached
from meta.tracing.emitter import Body, Emitter, RandomKeys
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of


@record
class State:
    """An array that the traced function reached, and the parameter that holds its value."""

    array: NDArray
    var: Var


@record
class LeftGradient:
    """A `.grad` at the end of a trace.

    target: the position of an input, or an array.  value: the gradient, None for none.  assigned: whether it replaces
    the `.grad` from before the call; otherwise it is added to that."""

    target: int | NDArray
    value: Atom | None
    assigned: bool


Held = tuple[Any, tuple[Any, ...]]
"""A list or dict of a model, and what it held while a program was traced through the model."""


def held(container: Any) -> Held:
    """A list, or the keys and values of a dict, as they are now."""
    values = container.values() if isinstance(container, dict) else ()  # pyright: ignore[reportUnknownVariableType]
    return cast("Held", (container, (*container, *values)))


class Trace(Emitter):
    """See the module docstring.

    builder: where the program grows.  names: id(array) -> name, for arrays that may be reached.  inputs: symbols of the
    function's own arguments, whose atoms are the first parameters.
    """

    def __init__(self, builder: Builder, names: Mapping[int, str], inputs: Sequence[Symbol] = ()) -> None:
        super().__init__(builder)
        self.names = names
        self.inputs = tuple((s, s.atom) for s in inputs)
        self.state: dict[int, State] = {}
        self.containers: dict[int, Held] = {}
        self.conditions: list[tuple[SymDim, MetaError]] = []
        """Sizes that are 0 or more where the program may run, and the errors of others."""
        self.modes: dict[int, tuple[Any, bool]] = {}
        """The models that the program depends on, with whether they are in train mode."""
        self.freed: set[Var] = set()
        """Variables that a backward pass went through without `retain_graph`."""
        self._values: dict[int, Atom] = {}
        self._constants: dict[int, NDArray] = {}
        self._params: set[Var] = {s.atom for s in inputs}  # type: ignore[misc]
        self.keys = RandomKeys(self._params)
        self._leaves: dict[Var, NDArray | Symbol] = {}
        self._grads: dict[int, tuple[NDArray | Symbol, Any]] = {}
        self._assigned: set[int] = set()
        self._cut: set[Var] = set()
        self._stopped: dict[Var, Var] = {}
        self._inside = ""
        """The conditional or loop that is being traced."""

    def reached(self, containers: Sequence[Any]) -> None:
        """Record the lists and dicts of a model that the program is traced through."""
        for container in containers:
            self.containers.setdefault(id(container), held(container))

    def read_mode(self, model: Any, training: bool) -> None:
        """Record the mode of a model that the program depends on."""
        self.modes.setdefault(id(model), (model, training))

    # --- values ------------------------------------------------------------------------------------------------------

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record a call on normalised arguments; the result as the traced function sees it.

        The results become the values of the tensors that the operator overwrites, which are returned in their place,
        as by eager calls: a later write to a result is one to that tensor."""
        result: Any = super().emit(op, args)
        if op.view or op.part:
            for part in leaves_of(result):
                mark_part(part, args[0])
        if not op.inplace:
            return result
        results = list(result) if op.outputs else [result]
        for index, name in op.inplace.items():
            target = args[op.schema.index[name]]
            self._overwrite(op.name, target, results[index])
            results[index] = target
        return tuple(results) if op.outputs else results[0]

    def result(self, var: Var) -> Any:
        if not modes.grad_enabled:
            self._cut.add(var)
        return super().result(var)

    def operand(self, op: Op, x: Any) -> Atom:
        return self.current(x, op.name) if op.name == "stop_gradient" else self.value(x, op.name)

    def value(self, x: Any, where: str) -> Atom:
        atom = self.current(x, where)
        return self._uncut(atom) if modes.grad_enabled and self.is_cut(atom) else atom

    def current(self, x: Symbol | NDArray, where: str = "trace") -> Atom:
        """The present value of an array or symbol in the program. Raises TraceError for a symbol of another trace."""
        if isinstance(x, NDArray):
            return self._array(x)
        atom = x.atom
        if isinstance(atom, Var) and atom not in self._params and self.builder.definition(atom) is None:
            raise TraceError(
                where,
                f"{x!r} belongs to another trace",
                "arrays, and symbols of this trace",
                "return it from the function it was computed in",
            )
        return atom

    def _array(self, x: NDArray) -> Atom:
        atom = self._values.get(id(x))
        if atom is not None:
            return atom
        if id(x) in self._constants:
            atom = Constant(x, x.type)
        else:
            names_in_use = {s.var.name for s in self.state.values()} | {p.name for p in self._params}
            atom = Var(_free(self.names.get(id(x)) or f"state{len(self.state)}", names_in_use), x.type)
            self.state[id(x)] = State(x, atom)
            self._params.add(atom)
            self._leaves[atom] = x
        self._values[id(x)] = atom
        return atom

    def register_constant(self, x: NDArray) -> None:
        """`x` was created by Python code inside the trace: a constant of the program."""
        self._constants[id(x)] = x

    def check_readable(self, x: NDArray, what: str) -> None:
        """Raise TraceError when the value of `x` may differ from call to call."""
        if id(x) not in self._values and id(x) not in self.names:
            return
        if isinstance(self._values.get(id(x)), Constant):
            return
        name = self.names.get(id(x)) or "an array"
        raise TraceError(
            what,
            f"the value of {name}, {x.type!r}, is needed while tracing",
            "shapes and dtypes, which are all that is known while tracing",
            "compute with operators, or read it outside of the traced function",
        )

    # --- branches and loops ------------------------------------------------------------------------------------------

    @contextmanager
    def nested(self, where: str, body: Body | None = None, params: Sequence[Var] = ()) -> Generator[None, None, None]:
        """The scope of a branch, or of the body of a loop with parameters. Raises TraceError for writes in it."""
        around, self._inside = self._inside, where
        self.keys.bodies += [] if body is None else [body]
        values, inputs = dict(self._values), [s.atom for s, _ in self.inputs]
        self._params.update(params)
        try:
            yield
        finally:
            self._inside = around
            if body is not None:
                params = (*params, *self.keys.bodies.pop().params)
            self._params.difference_update(params)
        written = [s.var.name for key, s in self.state.items() if self._values[key] is not values.get(key, s.var)]
        written += [
            str(getattr(var, "name", ""))
            for (s, var), old in zip(self.inputs, inputs, strict=True)
            if s.atom is not old
        ]
        if written:
            raise TraceError(
                where,
                f"{written[0]!r} is written in place inside",
                "branches and bodies that return what they compute",
                "return the new value, and update the tensor afterwards",
            )

    def _refuse_inside(self, what: str) -> None:
        where = self._inside
        if where:
            raise TraceError(
                where, f"{what} inside", "branches and bodies that compute values", f"call it outside of {where}"
            )

    # --- writes ------------------------------------------------------------------------------------------------------

    def update(self, x: NDArray | Symbol, value: NDArray | Symbol) -> None:
        """`x` is overwritten with the value of another tensor of its type.

        Raises GradientError for a leaf that requires gradients while they are recorded, as eager code does."""
        if value.type is not x.type:
            raise TypeInferenceError(
                "update", f"the value is {value.type!r}", f"the array's own type: {x.type!r}", "reshape or cast it"
            )
        if modes.grad_enabled:
            self._refuse_leaf("update", x)
        self._overwrite("update", x, value.stop_gradient())  # type: ignore[arg-type]

    def assign(self, op: str, x: NDArray | Symbol, value: Symbol) -> None:
        """`x` is overwritten with a result of the operator `op`, through which gradients flow.

        Raises GradientError for a leaf that requires gradients while they are recorded."""
        self.current(x, op)
        value = fitted(op, x, value)
        if not modes.grad_enabled:
            self._overwrite(op, x, value)
            return
        self._refuse_leaf(op, x)
        if isinstance(x, Symbol):
            x.atom = value.atom
        else:
            self._values[id(x)] = value.atom

    def _refuse_leaf(self, op: str, x: NDArray | Symbol) -> None:
        if self._is_leaf(self.current(x, op)):
            raise GradientError(
                op,
                f"the tensor of shape {x.shape} written in place is a leaf that requires grad",
                "tensors that an operator computed",
                LEAF_REMEDY,
            )

    def _overwrite(self, where: str, x: NDArray | Symbol, value: Symbol) -> None:
        self.current(x, where)
        if value.type is not x.type:
            raise TraceError(where, f"{x.type!r} is overwritten with {value.type!r}", "the same type")
        assert isinstance(value.atom, Var)
        if isinstance(x, Symbol):
            if x.atom in self._leaves:
                self._leaves[value.atom] = x
            x.atom = value.atom
            return
        self._values[id(x)] = value.atom
        self._leaves[value.atom] = x

    def write_where(self, condition: Symbol, function: Callable[[], Any]) -> None:
        """Run `function`. What it overwrites has its new values if `condition`, a 0-d bool tensor, is true, and keeps
        the old ones otherwise."""
        values, inputs = dict(self._values), [s.atom for s, _ in self.inputs]
        function()
        pairs: list[tuple[Any, Atom]] = [(s.array, values.get(key, s.var)) for key, s in self.state.items()]
        pairs += zip((s for s, _ in self.inputs), inputs, strict=True)
        for x, old in pairs:
            new = self.current(x)
            if new is not old:
                selected = meta.where(condition, Symbol(new), Symbol(old))  # type: ignore[arg-type]
                self._overwrite("update", x, selected.stop_gradient())

    def is_overwritten(self, x: NDArray) -> bool:
        """Whether the program has written an array so far."""
        key = id(x)
        return key in self.state and self._values[key] is not self.state[key].var

    def written(self) -> list[tuple[Var, Atom]]:
        """The parameters that the program writes, each with its last value: inputs, then state."""
        pairs = [*((var, s.atom) for s, var in self.inputs), *((s.var, self._values[k]) for k, s in self.state.items())]
        return [(var, value) for var, value in pairs if value is not var]  # type: ignore[misc]

    # --- gradients ---------------------------------------------------------------------------------------------------

    def mark(self, x: Symbol) -> None:
        """Make a symbol a leaf that requires gradients."""
        if isinstance(x.atom, Var):
            self._leaves[x.atom] = x

    def leaves(self) -> Iterator[tuple[Var, NDArray | Symbol]]:
        """The variables at which gradients arrive, each with the array or symbol whose `.grad` they go to."""
        return ((var, x) for var, x in self._leaves.items() if isinstance(x, Symbol) or x.requires_grad)

    def is_cut(self, atom: Atom) -> bool:
        """Whether a value was computed under `no_grad` and belongs to no array that requires gradients."""
        return atom in self._cut and not self._is_leaf(atom)

    def _is_leaf(self, atom: Atom) -> bool:
        leaf = self._leaves.get(atom) if isinstance(atom, Var) else None
        return isinstance(leaf, Symbol) or (leaf is not None and leaf.requires_grad)

    def _uncut(self, atom: Atom) -> Atom:
        """A value computed under `no_grad` as it is used outside: no gradient flows through it."""
        assert isinstance(atom, Var)
        stopped = self._stopped.get(atom)
        if stopped is None or self.builder.definition(stopped) is None:
            stopped = self._stopped[atom] = self.builder.call(get("stop_gradient"), (atom,))
        return stopped

    def gradient(self, x: NDArray | Symbol) -> Any:
        """The gradient of `x` so far in this trace."""
        entry = self._grads.get(id(x))
        return None if entry is None else entry[1]

    def set_gradient(self, x: NDArray | Symbol, gradient: Any) -> None:
        """Replace the gradient of `x`, for the rest of the trace."""
        self._grads[id(x)] = (x, gradient)

    def assign_gradient(self, x: NDArray | Symbol, gradient: Any) -> None:
        """The traced function assigns `x.grad`, so that what it was before the call does not matter."""
        self.set_gradient(x, gradient)
        self._assigned.add(id(x))

    def left_gradients(self) -> tuple[LeftGradient, ...]:
        """The gradients that inputs and arrays have at the end."""
        positions = {id(symbol): i for i, (symbol, _) in enumerate(self.inputs)}
        left: list[LeftGradient] = []
        for key, (x, gradient) in self._grads.items():
            target = positions.get(key) if isinstance(x, Symbol) else x
            if target is not None:
                atom = None if gradient is None else self.current(gradient, "grad")
                left.append(LeftGradient(target, atom, key in self._assigned))
        return tuple(left)

    def constant_results(self, outputs: Sequence[Atom]) -> frozenset[int]:
        """The positions of results that no gradient flows from outside of the trace: those computed under `no_grad`
        or by stop_gradient, and those whose graph a backward pass in the trace has freed."""
        freed = reached(self.builder.bindings, frozenset(self.freed)) if self.freed else set[Var]()

        def is_constant(atom: Atom) -> bool:
            value = self.builder.definition(atom)
            is_stopped = isinstance(value, Call) and value.op_name == "stop_gradient"
            return is_stopped or self.is_cut(atom) or atom in freed

        return frozenset(i for i, atom in enumerate(outputs) if is_constant(atom))

    def depends_on_leaves(self, x: Symbol) -> bool:
        """Whether gradients flow from `x` to anything that requires them."""
        return not self.is_cut(x.atom) and x.atom in reached(
            self.builder.bindings, frozenset(v for v, _ in self.leaves())
        )

    # --- random numbers ----------------------------------------------------------------------------------------------

    def random_key(self, device: Device | str = CPU, generator: Any = None, count: int = 1) -> Symbol:
        """A key for a random operator; `count` offsets are reserved. generator: None for the default one. Raises
        TraceError in a loop whose number of steps is not known."""
        return self.keys.key(device, generator, count)

    def key_stacks(self, body: Body, reverse: bool) -> list[Atom]:
        return [key.atom for key in self.keys.stacks(body, reverse)]


def _free(name: str, names_in_use: set[str]) -> str:
    """`name`, with a number where it is taken."""
    out, i = name, 1
    while out in names_in_use:
        out, i = f"{name}_{i}", i + 1
    return out
