"""Reverse-mode differentiation of a program while it is being built.

The reverse sweep over the bindings of a builder emits the gradient into the same builder, with the same generated
gradient rules as the tape, in time linear in the program. Conditionals are differentiated by a conditional whose
branches compute the branch again and then its gradient; calls of functions are inlined first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from meta import dtype as dtypes
from meta.eager.seeds import add_up, modified_error, zeros_of
from meta.errors import GradientError, combined
from meta.ir.builder import Builder
from meta.ir.expr import (
    MUTATES,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    FunctionExpr,
    If,
    Tuple,
    TupleGetItem,
    Var,
)
from meta.ir.type import TensorType, TupleType, flat_types, leaf_types
from meta.ir.visitor import free_vars, inline, operands
from meta.limits import MAX_DEPTH
from meta.op.grad.rule import GradRule, rule_for, rule_of
from meta.records import mutable, record
from meta.tracing.emitter import current_emitter, recording
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of, paired, with_leaves


@record
class Overwritten:
    """A value that was written in place. by: the value after it.  recorded: whether gradients flow through the write,
    which eager code computes in other memory if there are any."""

    by: Var
    recorded: bool


@mutable(eq=False)
class Sweep:
    """One reverse sweep.

    active: variables that depend on the sources.  sources: where gradients end.  gradients: those found so far, a
        Symbol for a tensor, a list with a Symbol or None a field for a tuple.
    problems: what has no gradient.  visited: calls and conditionals that were differentiated.
    overwritten: values that eager code does not have any more.
    """

    builder: Builder
    active: set[Var]
    sources: frozenset[Var]
    gradients: dict[Var, Any] = field(default_factory=dict[Var, Any])
    problems: list[GradientError] = field(default_factory=list[GradientError])
    visited: list[Binding] = field(default_factory=list[Binding])
    overwritten: Mapping[Var, Overwritten] = field(default_factory=dict[Var, Overwritten])
    fields: dict[tuple[Var, int], Var] = field(default_factory=dict[tuple[Var, int], Var])
    """The variables that fields of tuples were already bound to."""

    def add(self, atom: Atom, gradient: object) -> None:
        """Accumulate the gradient of a variable that the sources reach."""
        if not isinstance(atom, Var) or atom not in self.active or gradient is None:
            return
        self.gradients[atom] = add_up(self.gradients.get(atom), gradient)

    def modified(self, values: Iterable[Any]) -> Iterator[Var]:
        """Values that a write has replaced in their memory."""
        for x in values:
            write = self.overwritten.get(x) if isinstance(x, Var) else None
            if write is not None and not (write.recorded and (x in self.active or write.by in self.active)):
                yield x

    def is_active(self, arg: object) -> bool:
        return any(isinstance(atom, Var) and atom in self.active for atom in leaves_of(arg))


def gradients(builder: Builder, outputs: Mapping[Atom, Symbol], sources: Iterable[Var]) -> dict[Var, Symbol]:
    """Emit the gradients of `outputs` (atom -> its incoming gradient) with respect to `sources`.

    Called inside `recording(builder)`; looks at the bindings of the innermost open block. A source that no output
    depends on is absent from the result. Raises GradientError naming every operator on the way without a gradient."""
    sweep = run_sweep(builder, outputs, sources, [])
    if sweep.problems:
        raise combined(sweep.problems)
    return {v: sweep.gradients[v] for v in sweep.sources if v in sweep.gradients}


def run_sweep(
    builder: Builder,
    outputs: Mapping[Atom, Any],
    sources: Iterable[Var],
    problems: list[GradientError],
    ends: frozenset[Var] | None = None,
    overwritten: Mapping[Var, Overwritten] | None = None,
) -> Sweep:
    """Go through the innermost open block once, backwards. ends: variables that gradients stop at; the sources.
    overwritten: values that a gradient may not read, as eager code does not have them any more."""
    bindings = builder.bindings
    source_set = frozenset(sources)
    stops = source_set if ends is None else ends
    sweep = Sweep(builder, reached(bindings, source_set), source_set, problems=problems, overwritten=overwritten or {})
    for binding in bindings:
        value = binding.value
        if isinstance(value, TupleGetItem) and isinstance(value.value, Var):
            sweep.fields[value.value, value.index] = binding.var
    for atom, gradient in outputs.items():
        sweep.add(atom, gradient)
    span = builder.span
    try:
        for binding in reversed(bindings):
            gradient = sweep.gradients.get(binding.var)
            if gradient is not None and binding.var not in stops:
                builder.span = binding.span
                _RULES[type(binding.value)](sweep, binding, gradient)
    finally:
        builder.span = span
    return sweep


def reached(bindings: Sequence[Binding], sources: frozenset[Var]) -> set[Var]:
    """The variables that gradients flow from to `sources`, those inside of branches too."""
    active = set(sources)
    _extend(active, bindings)
    return active


def _extend(active: set[Var], bindings: Sequence[Binding]) -> None:
    """Add the variables that gradients flow from to variables in `active`."""

    def passes(value: Any) -> bool:
        if isinstance(value, If):
            for block in (value.then, value.orelse):
                _extend(active, block.bindings)
            read: Iterable[Atom] = (*value.then.results, *value.orelse.results)
        elif isinstance(value, FunctionExpr):
            read = free_vars(value)
        elif isinstance(value, Call) and value.callee is None:
            rule = rule_of(value.op)
            read = leaves_of([value.args[p] for p in rule.differentiable]) if rule else ()
        else:
            read = operands(value)
        return any(a in active for a in read if isinstance(a, Var))

    for binding in bindings:
        if passes(binding.value) and (_floating(binding.var.type) or isinstance(binding.value, FunctionExpr)):
            active.add(binding.var)


def _floating(kind: Any) -> bool:
    return any(isinstance(t, TensorType) and dtypes.is_inexact(t.dtype) for t in leaf_types(kind))


# --- one rule a kind of value ----------------------------------------------------------------------------------------


def _tuple(sweep: Sweep, binding: Binding, gradient: Any) -> None:
    assert isinstance(binding.value, Tuple)
    for atom, g in zip(binding.value.fields, gradient, strict=True):
        sweep.add(atom, g)


def _get_item(sweep: Sweep, binding: Binding, gradient: object) -> None:
    value = binding.value
    assert isinstance(value, TupleGetItem)
    kind = value.value.type
    assert isinstance(kind, TupleType)
    parts: list[Any] = [None] * len(kind.fields)
    parts[value.index] = gradient
    sweep.add(value.value, parts)


def _call(sweep: Sweep, binding: Binding, gradient: Any) -> None:
    value = binding.value
    assert isinstance(value, Call)
    if value.callee is not None:
        wrong = "a gradient goes through the call of a function"
        sweep.problems.append(
            GradientError("autodiff", wrong, "calls of operators", "inline it first; recursion has none")
        )
        return
    rule = rule_of(value.op)
    assert rule is not None  # the variable is active
    needs = tuple(sweep.is_active(value.args[p]) for p in rule.differentiable)
    try:
        rule.check_available(needs, str(binding.span) if binding.span else None)
    except GradientError as error:
        sweep.problems.append(error)
        for position in rule.differentiable:  # go on, to find what else is missing
            for atom in leaves_of(value.args[position]):
                if sweep.is_active(atom):
                    sweep.add(atom, zeros_of(atom.type))
        return
    types = flat_types((binding.var.type,))
    flows = rule.flowing(types)
    arrived = gradient if isinstance(binding.var.type, TupleType) else [gradient]
    dys = {i: g for i, g in enumerate(arrived) if g is not None and i in flows}
    if not dys:
        return
    if value.op_name != "straight_through":  # a value of a tensor, which keeps the graph of the one before
        sweep.visited.append(binding)
    saved = [*leaves_of([value.args[p] for p in rule.saved_args]), *_saved_results(sweep, rule, binding.var, types)]
    sweep.problems += [modified_error(rule.op, Symbol(x).shape) for x in sweep.modified(saved)]
    args = with_leaves(value.args, [_symbol(x) for x in leaves_of(value.args)])
    outs = [_result(sweep, binding.var, i) if rule.saves(i) else t for i, t in enumerate(types)]
    targets = [_target(value.args[p]) if need else None for p, need in zip(rule.differentiable, needs, strict=True)]
    found = rule_for(rule, types).function(needs, *rule.operands(args, outs, dys, flows))
    for atom, g in paired(targets, found):
        sweep.add(atom, g)


def _saved_results(sweep: Sweep, rule: GradRule, var: Var, types: Sequence[Any]) -> list[Any]:
    """The variables of the results that the gradient reads. The gradient of a loop reads stacks instead."""
    if rule.outputs is None:
        return []
    if not isinstance(var.type, TupleType):
        return [var] if rule.saves(0) else []
    return [sweep.fields.get((var, i)) for i in range(len(types)) if rule.saves(i)]


def _target(arg: object) -> Any:
    return list(cast("tuple[Any, ...]", arg)) if isinstance(arg, tuple) else arg


def _result(sweep: Sweep, var: Var, index: int) -> Symbol:
    """One of the results of a call, as a value."""
    if not isinstance(var.type, TupleType):
        return Symbol(var)
    if (var, index) not in sweep.fields:
        sweep.fields[var, index] = sweep.builder.get_item(var, index)
    return Symbol(sweep.fields[var, index])


def _symbol(arg: object) -> Any:
    return Symbol(arg) if isinstance(arg, (Var, Constant)) and isinstance(arg.type, TensorType) else arg


def _if(sweep: Sweep, binding: Binding, gradient: object) -> None:
    """Gradients flow to the variables around that some branch passes one to, as they do in eager code: a zero for
    another variable would go on to graphs that the branches only read."""
    value = binding.value
    assert isinstance(value, If)
    builder, span = sweep.builder, sweep.builder.next_span()
    outer = [v for v in free_vars(value) if v in sweep.active]
    kinds = [t for v in outer for t in leaf_types(v.type) if _floating(t)]
    arrived: set[int] = set()
    blocks: list[Block] = []
    for block in (value.then, value.orelse):
        with builder.block() as scope:
            inner = _branch(sweep, block, outer, gradient)
            found = [g for v in outer for g in _flat(inner.gradients.get(v), v.type)]
            arrived.update(i for i, g in enumerate(found) if g is not None)
            scope.ret([_or_zeros(g, kind) for g, kind in zip(found, kinds, strict=True)])
        blocks.append(scope.block)
    if not arrived:
        return
    sweep.visited.append(binding)
    places = sorted(arrived)
    then, orelse = (Block(b.bindings, Tuple(tuple(b.results[i] for i in places))) for b in blocks)
    results = current_emitter().result(builder.emit(If(value.cond, then, orelse, span)))
    symbols = dict(zip(places, results, strict=True))
    parts = iter(map(symbols.get, range(len(kinds))))
    for v in outer:
        sweep.add(v, _nested(parts, v.type))


def _branch(sweep: Sweep, block: Block, outer: Sequence[Var], gradient: Any) -> Sweep:
    """Emit a branch again, and its gradient."""
    copied = inline(sweep.builder, FunctionExpr((), block), ())
    outputs: dict[Atom, Any] = {}
    results = zip(copied.fields, gradient, strict=True) if isinstance(copied, Tuple) else [(copied, gradient)]
    for atom, g in results:
        outputs[atom] = add_up(outputs.get(atom), g)
    return run_sweep(sweep.builder, outputs, outer, sweep.problems, overwritten=sweep.overwritten)


def _flat(gradient: Any, kind: Any) -> list[Any]:
    """The gradients of the floating tensors in a value of type `kind`, None where there is none."""
    if isinstance(kind, TupleType):
        return [g for i, t in enumerate(kind.fields) for g in _flat(None if gradient is None else gradient[i], t)]
    return [gradient] if _floating(kind) else []


def _nested(parts: Iterator[Any], kind: object) -> Any:
    """The inverse of `_flat`."""
    if isinstance(kind, TupleType):
        fields = [_nested(parts, t) for t in kind.fields]
        return fields if any(g is not None for g in fields) else None
    return next(parts) if _floating(kind) else None


def _or_zeros(gradient: Symbol | None, kind: object) -> Atom:
    return (zeros_of(kind) if gradient is None else gradient).atom


def _function(sweep: Sweep, binding: Binding, gradient: object) -> None:
    del binding, gradient
    sweep.problems.append(
        GradientError("autodiff", "a gradient reaches a function value", "tensors", "inline it first")
    )


_RULES: dict[type, Any] = {Call: _call, Tuple: _tuple, TupleGetItem: _get_item, If: _if, FunctionExpr: _function}


# --- whole functions -------------------------------------------------------------------------------------------------


def differentiate(function: FunctionExpr, positions: Sequence[int]) -> FunctionExpr:
    """`f(params) -> ys` as `f'(params, dys) -> (ys, gradients of the parameters at `positions`)`; zeros where unused.

    There is a dy, called `dy` or `dy0`, `dy1`, ..., for every floating result that does not replace a parameter
    (MUTATES). Raises GradientError that names every operator on the way that has no gradient."""
    builder = Builder(caller_spans=False)
    params = tuple(Var(p.name, p.type, p.span) for p in function.params)
    mutated = function.attrs.get(MUTATES, {})
    kinds = [r.type for i, r in enumerate(function.body.results) if i not in mutated and _floating(r.type)]
    dys = [Var(name, kind) for name, kind in zip(_dy_names(len(kinds), {p.name for p in params}), kinds, strict=True)]
    with builder.function(function.name, (*params, *dys), function.attrs) as scope, recording(builder):
        result = inline(builder, function, params)
        ys = result.fields if isinstance(result, Tuple) else (result,)
        incoming = iter(dys)
        outputs: dict[Atom, Any] = {}
        for i, y in enumerate(ys):
            if i not in mutated and _floating(y.type):
                outputs[y] = add_up(outputs.get(y), _incoming(builder, next(incoming)))
        arrived = gradients(builder, outputs, [params[i] for i in positions])
        scope.ret([*ys, *(_or_zeros(arrived.get(params[i]), params[i].type) for i in positions)])
    return scope.function


def _incoming(builder: Builder, dy: Var) -> Any:
    """A dy as a gradient: a symbol, or a list of them for a tuple."""
    if isinstance(dy.type, TupleType):
        return [
            _incoming(builder, builder.get_item(dy, i)) if _floating(t) else None for i, t in enumerate(dy.type.fields)
        ]
    return Symbol(dy)


def _dy_names(number: int, names_in_use: set[str]) -> list[str]:
    for prefix in ("dy" + "_" * i for i in range(MAX_DEPTH)):
        names = [prefix] if number == 1 else [f"{prefix}{i}" for i in range(number)]
        if not names_in_use & set(names):
            return names
    return ["dy"] * number
