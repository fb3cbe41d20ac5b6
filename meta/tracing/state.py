"""A trace in progress: its branches and loops, where gradients go, and its random keys."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from meta.device import CPU, Device
from meta.dim import SymDim
from meta.eager.ndarray import NDArray
from meta.errors import MetaError, TraceError
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Call, Var
from meta.modes import modes
from meta.records import record
from meta.tracing.differentiate import reached
from meta.tracing.emitter import Body, RandomKeys
from meta.tracing.symbol import Symbol
from meta.tracing.values import Values
from meta.tree import is_dict


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
    values = container.values() if is_dict(container) else ()
    return cast("Held", (container, (*container, *values)))


class Trace(Values):
    """See the module docstring of meta.tracing, and Values for the arguments."""

    def __init__(self, builder: Builder, names: Mapping[int, str], inputs: Sequence[Symbol] = ()) -> None:
        super().__init__(builder, names, inputs)
        self.containers: dict[int, Held] = {}
        self.conditions: list[tuple[SymDim, MetaError]] = []
        """Sizes that are 0 or more where the program may run, and the errors of others."""
        self.modes: dict[int, tuple[Any, bool]] = {}
        """The models that the program depends on, with whether they are in train mode."""
        self.freed: set[Var] = set()
        """Variables that a backward pass went through without `retain_graph`."""
        self.keys = RandomKeys(self._params)
        self.before: list[Callable[[], None]] = []
        """Functions that every call of the program runs first, on the host."""
        self._grads: dict[int, tuple[NDArray | Symbol, Any]] = {}
        self._assigned: set[int] = set()
        self._inside = ""
        """The conditional or loop that is being traced."""

    def reached(self, containers: Sequence[Any]) -> None:
        """Record the lists and dicts of a model that the program is traced through."""
        for container in containers:
            self.containers.setdefault(id(container), held(container))

    def read_mode(self, model: object, training: bool) -> None:
        """Record the mode of a model that the program depends on."""
        self.modes.setdefault(id(model), (model, training))

    # --- branches and loops ------------------------------------------------------------------------------------------

    @contextmanager
    def nested(self, where: str, body: Body | None = None, params: Sequence[Var] = ()) -> Generator[None, None, None]:
        """The scope of a branch, or of the body of a loop with parameters. Raises TraceError for writes in it."""
        around, self._inside = self._inside, where
        self.keys.bodies += [] if body is None else [body]
        first, constants = len(self._writes), len(self._constants)
        self._attach_written()
        self._params.update(params)
        try:
            yield
        finally:
            self._inside = around
            if body is not None:
                params = (*params, *self.keys.bodies.pop().params)
            self._params.difference_update(params)
        own = frozenset([*self._constants][constants:])
        for x, before in self._writes[first:]:
            if self._is_in_scope(before) and id(x) not in own:
                name = getattr(self._parameter(x), "name", "") or f"a tensor of shape {x.shape}"
                raise TraceError(
                    where,
                    f"{name!r} is written in place inside",
                    "branches and bodies that return what they compute",
                    "return the new value, and update the tensor afterwards",
                )

    def _attach_written(self) -> None:
        """Attach what was written under `no_grad` here, as a branch or loop that did would read the old values."""
        for x in {id(x): x for x, _ in self._writes}.values():
            atom = self._present(x)
            if modes.grad_enabled and self.history(atom) is not None and self._is_in_scope(atom):
                self._attach(atom)

    def _refuse_inside(self, what: str) -> None:
        where = self._inside
        if where:
            raise TraceError(
                where, f"{what} inside", "branches and bodies that compute values", f"call it outside of {where}"
            )

    # --- gradients ---------------------------------------------------------------------------------------------------

    def mark(self, x: Symbol, is_leaf: bool = True) -> None:
        """Make a symbol one that gradients end at. is_leaf: whether writes are refused while they are recorded."""
        x.atom = self._attach(x.atom)
        if isinstance(x.atom, Var):
            self._leaves[x.atom] = x
            if not is_leaf:
                self._computed.add(x.atom)

    def leaves(self) -> Iterator[tuple[Var, NDArray | Symbol]]:
        """The variables at which gradients arrive, each with the array or symbol whose `.grad` they go to."""
        return ((var, x) for var, x in self._leaves.items() if isinstance(x, Symbol) or x.requires_grad)

    def gradient(self, x: NDArray | Symbol) -> Any:
        """The gradient of `x` so far in this trace."""
        entry = self._grads.get(id(x))
        return None if entry is None else entry[1]

    def set_gradient(self, x: NDArray | Symbol, gradient: object) -> None:
        """Replace the gradient of `x`, for the rest of the trace."""
        self._grads[id(x)] = (x, gradient)

    def assign_gradient(self, x: NDArray | Symbol, gradient: object) -> None:
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
            return is_stopped or self.history(atom) is None or atom in freed

        return frozenset(i for i, atom in enumerate(outputs) if is_constant(atom))

    def depends_on_leaves(self, x: Symbol) -> bool:
        """Whether gradients flow from `x` to anything that requires them."""
        history = self.history(x.atom)
        return history is not None and history in reached(self.builder.bindings, frozenset(v for v, _ in self.leaves()))

    # --- random numbers ----------------------------------------------------------------------------------------------

    def random_key(self, device: Device | str = CPU, generator: object = None, count: int = 1) -> Symbol:
        """A key for a random operator; `count` offsets are reserved. generator: None for the default one. Raises
        TraceError in a loop whose number of steps is not known."""
        return self.keys.key(device, generator, count)

    def key_stacks(self, body: Body, reverse: bool) -> list[Atom]:
        return [key.atom for key in self.keys.stacks(body, reverse)]
