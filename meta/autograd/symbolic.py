"""Reverse-mode differentiation of a program while it is being built.

The reverse sweep over the bindings of a builder emits the gradient into the same builder, with the same generated
gradient rules as the tape. Conditionals are differentiated by a conditional whose branches compute the branch again
and then its gradient; calls of functions are inlined first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meta import dtype as dtypes
from meta.autograd.rule import GradRule
from meta.autograd.tape import table
from meta.errors import GradientError, message
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Binding, Block, Call, Expr, Function, If, Tuple, TupleGetItem, Var
from meta.ir.type import TensorType, TupleType
from meta.ir.visitor import free_vars, inline, operands
from meta.symbol import Symbol
from meta.tracing import recording


@dataclass(eq=False)
class Sweep:
    """One reverse sweep: which variables depend on the sources, and the gradients found so far."""

    builder: Builder
    active: set[Var]
    gradients: dict[Var, Any] = field(default_factory=dict[Var, Any])
    """A Symbol for a tensor; a list with a Symbol or None a field for a tuple."""
    problems: list[str] = field(default_factory=list[str])

    def add(self, atom: Atom, gradient: Any) -> None:
        """Accumulate the gradient of a variable that the sources reach."""
        if not isinstance(atom, Var) or atom not in self.active or gradient is None:
            return
        before = self.gradients.get(atom)
        if isinstance(atom.type, TupleType):
            before = before or [None] * len(atom.type.fields)
            self.gradients[atom] = [_sum(b, g) for b, g in zip(before, gradient, strict=True)]
        else:
            self.gradients[atom] = _sum(before, gradient)


def _sum(a: Symbol | None, b: Symbol | None) -> Symbol | None:
    return b if a is None else a if b is None else a + b


def gradients(
    builder: Builder, outputs: Mapping[Atom, Symbol], sources: Iterable[Var]
) -> dict[Var, Symbol]:
    """Emit the gradients of `outputs` (atom -> its incoming gradient) with respect to `sources`.

    Called inside `recording(builder)`. A source that no output depends on is absent from the result. Raises
    GradientError naming every operator on the way that has no gradient."""
    bindings = builder.bindings
    sweep = Sweep(builder, _reached(bindings, sources))
    for atom, gradient in outputs.items():
        sweep.add(atom, gradient)
    wanted = list(sources)
    _reverse(sweep, bindings)
    if sweep.problems:
        raise GradientError("\n".join(dict.fromkeys(sweep.problems)))
    return {v: sweep.gradients[v] for v in wanted if v in sweep.gradients}


def _reached(bindings: Sequence[Binding], sources: Iterable[Var]) -> set[Var]:
    """The variables that depend on `sources` through floating values."""
    active = set(sources)
    for binding in bindings:
        value = binding.value
        if isinstance(value, Function):
            continue
        read = free_vars(value) if isinstance(value, If) else operands(value)
        if any(a in active for a in read if isinstance(a, Var)) and _floating(binding.var.type):
            active.add(binding.var)
    return active


def _floating(kind: Any) -> bool:
    if isinstance(kind, TupleType):
        return any(map(_floating, kind.fields))
    return isinstance(kind, TensorType) and dtypes.is_float(kind.dtype)


def _reverse(sweep: Sweep, bindings: Sequence[Binding]) -> None:
    for binding in reversed(bindings):
        gradient = sweep.gradients.get(binding.var)
        if gradient is not None:
            _RULES[type(binding.value)](sweep, binding.var, binding.value, gradient)


def _tuple(sweep: Sweep, var: Var, value: Tuple, gradient: Any) -> None:
    del var
    for atom, g in zip(value.fields, gradient, strict=True):
        sweep.add(atom, g)


def _get_item(sweep: Sweep, var: Var, value: TupleGetItem, gradient: Any) -> None:
    del var
    kind = value.value.type
    assert isinstance(kind, TupleType)
    parts: list[Any] = [None] * len(kind.fields)
    parts[value.index] = gradient
    sweep.add(value.value, parts)


def _call(sweep: Sweep, var: Var, value: Call, gradient: Any) -> None:
    if value.callee is not None:
        sweep.problems.append(message("autodiff", "a call of a function value", "operators", "inline it first"))
        return
    rule = table().get(value.op_name)
    if rule is None:
        _missing(sweep, value)
        return
    needs = tuple(_is_active(sweep, value.args[p]) for p in rule.differentiable)
    if not any(needs):
        return
    unavailable = [p for p, need in zip(rule.differentiable, needs, strict=True) if need and p in rule.unavailable]
    if unavailable:
        sweep.problems.append(
            message(value.op_name, f"argument {unavailable[0]} has no gradient", rule.unavailable[unavailable[0]])
        )
        return
    found = _apply(sweep, rule, needs, var, value, gradient)
    for position, need, g in zip(rule.differentiable, needs, found, strict=True):
        if not need or g is None:
            continue
        target = value.args[position]
        for atom, part in zip(target, g, strict=True) if isinstance(target, tuple) else ((target, g),):
            sweep.add(atom, part)


def _missing(sweep: Sweep, value: Call) -> None:
    """An operator without a rule passes nothing on; that is an error only where it could have (see derivatives.yaml)."""
    del sweep, value


def _apply(sweep: Sweep, rule: GradRule, needs: tuple[bool, ...], var: Var, value: Call, gradient: Any) -> tuple[Any, ...]:
    """Call the generated gradient function on symbols."""
    sweep.builder.span = value.span
    args = tuple(_symbol(a) for a in value.args)
    try:
        if rule.outputs == 1:
            return rule.function(needs, *args, Symbol(var), gradient)
        outs = _fields(sweep.builder, var)
        dys = [_filled(rule, i, g, out) for i, (g, out) in enumerate(zip(gradient, outs, strict=True))]
        if rule.outputs < 0:
            return rule.function(needs, *args, outs, tuple(dys))
        return rule.function(needs, *args, *outs, *dys)
    finally:
        sweep.builder.span = None


def _fields(builder: Builder, var: Var) -> tuple[Symbol, ...]:
    """Symbols for the fields of a tuple variable: the ones already taken out of it, where there are."""
    kind = var.type
    assert isinstance(kind, TupleType)
    taken = {
        b.value.index: b.var for b in builder.bindings if isinstance(b.value, TupleGetItem) and b.value.value is var
    }
    return tuple(Symbol(taken.get(i) or builder.get_item(var, i)) for i in range(len(kind.fields)))


def _filled(rule: GradRule, index: int, gradient: Symbol | None, out: Symbol) -> Symbol | None:
    if gradient is not None or index in rule.undefined:
        return gradient
    from meta._generated.functions import zeros

    return zeros(out.shape, dtype=out.dtype, device=out.device)  # type: ignore[return-value, arg-type]


def _symbol(arg: Any) -> Any:
    if isinstance(arg, tuple):
        return tuple(_symbol(a) for a in arg)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return Symbol(arg) if isinstance(getattr(arg, "type", None), TensorType) else arg


def _is_active(sweep: Sweep, arg: Any) -> bool:
    if isinstance(arg, tuple):
        return any(_is_active(sweep, a) for a in arg)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return isinstance(arg, Var) and arg in sweep.active


def _if(sweep: Sweep, var: Var, value: If, gradient: Any) -> None:
    """A conditional whose branches compute the branch again and the gradients of what it reads from outside."""
    del var
    builder = sweep.builder
    outer = [v for v in free_vars(value) if v in sweep.active]

    def branch(block: Block) -> list[Atom]:
        copied = inline(builder, Function((), block), ())
        results = copied.fields if isinstance(copied, Tuple) else (copied,)
        incoming = gradient if isinstance(gradient, list) else [gradient]
        pairs = {r: g for r, g in zip(results, incoming, strict=True) if g is not None}  # pyright: ignore[reportUnknownVariableType]
        found = gradients(builder, pairs, outer)  # pyright: ignore[reportUnknownArgumentType]
        return [_or_zeros(found.get(v), v) for v in outer]

    result = builder.if_(value.cond, lambda: branch(value.then), lambda: branch(value.orelse))
    for i, v in enumerate(outer):
        sweep.add(v, Symbol(builder.get_item(result, i)))


def _or_zeros(gradient: Symbol | None, var: Var) -> Atom:
    if gradient is not None:
        return gradient.atom
    from meta._generated.functions import zeros_like

    made: Symbol = zeros_like(Symbol(var))
    return made.atom


def _function(sweep: Sweep, var: Var, value: Expr, gradient: Any) -> None:
    del var, value, gradient
    sweep.problems.append(message("autodiff", "a gradient reaches a function value", "tensors", "inline it first"))


_RULES: dict[type, Any] = {Call: _call, Tuple: _tuple, TupleGetItem: _get_item, If: _if, Function: _function}


def backward(y: Symbol, dy: Symbol | None) -> None:
    """`y.backward(dy)` inside a traced function: gradients of every array the trace reached that requires them."""
    from meta._generated.functions import ones
    from meta.ir.builder import current
    from meta.scope import modes

    trace = modes.trace
    builder = current()
    if trace is None or builder is None:
        raise GradientError(message("backward", "a symbol outside of a trace", "inside a traced function"))
    if dy is None:
        if y.size != 1:
            raise GradientError(
                message("backward", f"the tensor has shape {y.shape} and no gradient was given",
                        "without dy: tensors with one element", "pass dy, or reduce with .sum()")
            )  # fmt: skip
        dy = ones(y.shape, dtype=y.dtype, device=y.device)  # type: ignore[assignment, arg-type]
    trace.backwards.append((y.atom, dy))
    leaves = {var: x for _, x, var in trace.state.values() if x.requires_grad}
    found = gradients(builder, {y.atom: dy}, leaves)  # type: ignore[dict-item]
    for var, gradient in found.items():
        trace.set_grad(leaves[var], gradient)


def gradient_of(x: Symbol) -> Symbol | None:
    """See Symbol.grad."""
    from meta.ir.builder import current
    from meta.scope import modes

    trace, builder = modes.trace, current()
    if trace is None or builder is None or not isinstance(x.atom, Var):
        return None
    total: Symbol | None = None
    for y, dy in trace.backwards:
        total = _sum(total, gradients(builder, {y: dy}, [x.atom]).get(x.atom))
    return total


def differentiate(function: Function, wanted: Sequence[int]) -> Function:
    """`f(params) -> ys` as `f'(params, dys) -> (ys, gradients of the parameters at `wanted`)`; zeros where unused.

    Only floating results have a dy."""
    builder = Builder(caller_spans=False)
    params = tuple(Var(p.name, p.type, p.span) for p in function.params)
    dys = tuple(
        Var(f"dy{i}" if len(function.body.results) > 1 else "dy", r.type)
        for i, r in enumerate(function.body.results)
        if _floating(r.type)
    )
    with builder.function(function.name, (*params, *dys), function.attrs) as scope, recording(builder):
        result = inline(builder, function, params)
        ys = result.fields if isinstance(result, Tuple) else (result,)
        incoming = iter(dys)
        outputs: dict[Atom, Symbol] = {}
        for y in ys:
            if _floating(y.type):
                dy = Symbol(next(incoming))
                outputs[y] = outputs[y] + dy if y in outputs else dy
        found = gradients(builder, outputs, [params[i] for i in wanted])
        scope.ret([*ys, *(_or_zeros(found.get(params[i]), params[i]) for i in wanted)])
    return scope.function
