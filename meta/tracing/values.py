"""The values of arrays and symbols in a trace: what a write in place changes, and which gradient a value has.

A write gives a tensor, and what shares its memory, another value. What is written with gradients has the gradient of
the new value; under `no_grad`, and through a view without a gradient, the gradient of the old value stays. A value that
was computed under `no_grad` has none. Both are marked where the value is used outside: by a `stop_gradient`, or by a
`straight_through` with the value from before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import meta
from meta.eager.gradient_graph import written_leaf
from meta.eager.inplace import fitted
from meta.eager.ndarray import NDArray
from meta.errors import TraceError, TypeInferenceError
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Constant, Var
from meta.modes import modes
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op, get
from meta.parts import AliasGroup, mark_part, part_origin
from meta.records import record
from meta.tracing.differentiate import Overwritten
from meta.tracing.emitter import Emitter
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of


@record
class State:
    """An array that the traced function reached, and the parameter that holds its value."""

    array: NDArray
    var: Var


class Values(Emitter):
    """A trace as far as values go. builder: where the program grows.  names: id(array) -> name, for arrays that may be
    reached.  inputs: symbols of the function's own arguments, whose atoms are the first parameters."""

    def __init__(self, builder: Builder, names: Mapping[int, str], inputs: Sequence[Symbol] = ()) -> None:
        super().__init__(builder)
        self.names = names
        self.inputs = tuple((s, s.atom) for s in inputs if isinstance(s.atom, Var))
        self.state: dict[int, State] = {}
        self.recorded: set[Var] = set()
        """The parameters that were written with gradients."""
        self.overwritten: dict[Var, Overwritten] = {}
        """Values that writes in place have replaced."""
        self._values: dict[int, Atom] = {}
        self._constants: dict[int, NDArray] = {}
        self._params: set[Var] = {var for _, var in self.inputs}
        self._leaves: dict[Var, NDArray | Symbol] = {}
        self._computed: set[Var] = set()
        """The inputs among them that an operator computed before the call."""
        self._histories: dict[Var, Atom | None] = {}
        """For each value computed or written under `no_grad`, the value whose gradient it has: the overwritten one,
        or None for no gradient."""
        self._attached: dict[Var, Var] = {}
        self._writes: list[tuple[Symbol | NDArray, Atom]] = []
        """What was written so far, with the value from before."""
        self.is_conditional = False
        """Whether `write_where` decides over what is written now."""
        self._aliases: dict[int, AliasGroup] = {}
        """The group of each array that has views in the trace."""

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record a call on normalised arguments; the result as the traced function sees it.

        The results become the values of the tensors that the operator overwrites, which are returned in their place,
        as by eager calls: a later write to a result is one to that tensor."""
        result: Any = super().emit(op, args)
        if op.view:
            rule = gradient_rule(op.name)
            self._link(result, args[0], modes.grad_enabled and rule is not None and 0 in rule.differentiable)
        elif op.part:
            for part in leaves_of(result):
                mark_part(part, args[0])
        if not op.inplace:
            return result
        results = list(result) if op.outputs else [result]
        for index, name in op.inplace.items():
            target = args[op.schema.index[name]]
            self._write(op.name, target, results[index].atom, recorded=False)
            results[index] = target
        return tuple(results) if op.outputs else results[0]

    def result(self, var: Var) -> Any:
        if not modes.grad_enabled:
            self._histories[var] = None
        return super().result(var)

    def operand(self, op: Op, x: Any) -> Atom:
        return self.current(x, op.name) if op.name == "stop_gradient" else self.value(x, op.name)

    def value(self, x: Any, where: str) -> Atom:
        atom = self.current(x, where)
        return self._attach(atom) if modes.grad_enabled and atom in self._histories else atom

    def attached(self, x: Any, where: str = "trace") -> Atom:
        """The value of a tensor as the result of a gradient graph: with its gradient, if it has one."""
        atom = self.current(x, where)
        return atom if self.history(atom) is None else self._attach(atom)

    def history(self, atom: Atom) -> Atom | None:
        """The value whose gradient a value has: itself unless it was computed or written under `no_grad`."""
        return self._histories.get(atom, atom) if isinstance(atom, Var) else atom

    def _attach(self, atom: Atom) -> Atom:
        """A value computed or written under `no_grad` as it is used outside: with its gradient."""
        history = self.history(atom)
        if history is atom:
            return atom
        assert isinstance(atom, Var)
        attached = self._attached.get(atom)
        if attached is None or self.builder.definition(attached) is None:
            if history is None:
                attached = self.builder.call(get("stop_gradient"), (atom,))
            else:
                attached = self.builder.call(get("straight_through"), (atom, history))
            self._attached[atom] = attached
        return attached

    def current(self, x: Symbol | NDArray, where: str = "trace") -> Atom:
        """The present value of an array or symbol in the program. Raises TraceError for a symbol of another trace."""
        atom = self._present(x)
        if not self._is_in_scope(atom):
            raise TraceError(
                where,
                f"{x!r} belongs to another trace",
                "arrays, and symbols of this trace",
                "return it from the function it was computed in",
            )
        return atom

    def _present(self, x: Symbol | NDArray) -> Atom:
        return self._array(x) if isinstance(x, NDArray) else x.atom

    def _is_in_scope(self, atom: Atom) -> bool:
        """Whether a value can be read where the trace is."""
        return not isinstance(atom, Var) or atom in self._params or self.builder.definition(atom) is not None

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

    # --- writes ------------------------------------------------------------------------------------------------------

    def update(self, x: NDArray | Symbol, value: NDArray | Symbol) -> None:
        """`x` is overwritten with another tensor of its type, through which gradients flow."""
        if value.type is not x.type:
            raise TypeInferenceError(
                "update", f"the value is {value.type!r}", f"the array's own type: {x.type!r}", "reshape or cast it"
            )
        self._write("update", x, self._copied(self.value(value, "update")), modes.grad_enabled)

    def assign(self, op: str, x: NDArray | Symbol, value: Symbol) -> None:
        """`x` is overwritten with a result of the operator `op`, through which gradients flow."""
        self._write(op, x, fitted(op, x, value).atom, modes.grad_enabled)

    def _write(self, op: str, x: NDArray | Symbol, value: Atom, recorded: bool) -> None:
        """`x`, and what shares its memory, has another value of its type, which no other tensor has.

        recorded: the gradient is the one of `value`; otherwise the one of the old value stays. Raises GradientError
        for a leaf that requires gradients if the write is recorded, as eager code does."""
        self.current(x, op)
        if value.type is not x.type:
            raise TraceError(op, f"{x.type!r} is overwritten with {value.type!r}", "the same type")
        others = [(y, same) for y, same in self._others(x) if self._is_in_scope(self._present(y))]
        if recorded and any(self._is_leaf(self.current(y)) for y, same in ((x, True), *others) if same):
            raise written_leaf(op, x)
        self._replace(x, value, recorded)
        for other, same in others:
            self._replace(other, self._copied(value, other.shape, recorded and same), recorded and same)

    def _replace(self, x: NDArray | Symbol, value: Atom, recorded: bool) -> None:
        before = self.current(x)
        assert isinstance(value, Var)
        self._writes.append((x, before))
        for old in (before, self._attached.get(before) if isinstance(before, Var) else None):
            if isinstance(old, Var):
                self.overwritten[old] = Overwritten(value, recorded)
        if not recorded:
            self._histories[value] = self.history(before)
        elif (param := self._parameter(x)) is not None:
            self.recorded.add(param)
        if isinstance(x, NDArray):
            self._values[id(x)] = value
        else:
            x.atom = value

    def _copied(self, value: Atom, shape: Sequence[Any] | None = None, recorded: bool | None = None) -> Var:
        """A value in another variable, in another shape if it has one."""
        kind: Any = value.type
        recorded = modes.grad_enabled if recorded is None else recorded
        if shape in (None, kind.shape):
            name, operands = ("straight_through", (value, value)) if recorded else ("stop_gradient", (value,))
            return self.builder.call(get(name), operands)
        return self.builder.call(get("reshape"), (value, tuple(shape or ())))

    def write_where(self, condition: Symbol, function: Callable[[], Any]) -> None:
        """Run `function`. What it overwrites has its new values if `condition`, a 0-d bool tensor, is true, and keeps
        the old ones otherwise."""
        first, length = len(self._writes), len(self.builder.bindings)
        self.is_conditional, around = True, self.is_conditional
        try:
            function()
        finally:
            self.is_conditional = around
        inside = {binding.var for binding in self.builder.bindings[length:]}
        written = {id(x): (x, before) for x, before in reversed(self._writes[first:]) if before not in inside}
        for key in dict.fromkeys((*self.state, *written)):  # in the order of parameters
            if key not in written:
                continue
            x, before = written[key]
            selected: Any = meta.where(condition, Symbol(self.current(x)), Symbol(before))
            self._replace(x, selected.atom, recorded=False)

    def is_overwritten(self, x: NDArray) -> bool:
        """Whether the program has written an array so far."""
        key = id(x)
        return key in self.state and self._values[key] is not self.state[key].var

    def written(self) -> list[tuple[Var, Atom]]:
        """The parameters that the program writes, each with its last value: inputs, then state. A value has a gradient
        if the parameter was written with one."""
        pairs = [*((var, s.atom) for s, var in self.inputs), *((s.var, self._values[k]) for k, s in self.state.items())]
        written: list[Any] = [(var, value) for var, value in pairs if value is not var]
        return [(var, self._attach(value) if var in self.recorded else value) for var, value in written]

    def _parameter(self, x: Symbol | NDArray) -> Var | None:
        """The parameter whose value a tensor had at first."""
        if isinstance(x, NDArray):
            return self.state[id(x)].var if id(x) in self.state else None
        return next((var for symbol, var in self.inputs if symbol is x), None)

    def _is_leaf(self, atom: Atom) -> bool:
        history = self.history(atom)
        leaf = self._leaves.get(history) if isinstance(history, Var) else None
        if isinstance(leaf, NDArray):
            return leaf.requires_grad and leaf.is_leaf
        return leaf is not None and history not in self._computed

    # --- views -------------------------------------------------------------------------------------------------------

    def _link(self, view: Symbol, base: Symbol | NDArray, same_history: bool) -> None:
        """`view` shares the memory of `base`."""
        group = self._group(base)
        if group is None:
            group = AliasGroup(base)
            if isinstance(base, NDArray):
                self._aliases[id(base)] = group
            else:
                base.aliases = group
        group.add(view, base, same_history)
        view.aliases = group
        view.origin = part_origin(base)

    def _group(self, x: Symbol | NDArray) -> AliasGroup | None:
        return self._aliases.get(id(x)) if isinstance(x, NDArray) else x.aliases

    def _others(self, x: Symbol | NDArray) -> Iterator[tuple[Any, bool]]:
        group = self._group(x)
        return iter(()) if group is None else group.others(x)


def _free(name: str, names_in_use: set[str]) -> str:
    """`name`, with a number where it is taken."""
    out, i = name, 1
    while out in names_in_use:
        out, i = f"{name}_{i}", i + 1
    return out
