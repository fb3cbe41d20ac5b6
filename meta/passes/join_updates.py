"""Updates of parameters that are written out become operators, which read and write each tensor once.

v <- v * momentum + dx
x <- x - v * learning_rate      =>      x, v <- sgd(x, dx, v, learning_rate, momentum)

Fusion makes a kernel of either line, and both pass over v. Other systems write optimizers this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from meta.ir.expr import MUTATES, Atom, Binding, Call, Expr, FunctionExpr, TupleGetItem, Var
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts, walk
from meta.modes import modes
from meta.op.registry import get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Rule, Scope, by_op, counted, plain_call, rewrite
from meta.records import record

_DTYPES: Final = frozenset({"float32", "float64"})
"""sgd computes narrower dtypes in float32, which rounds once where written-out steps round each result."""


@function_pass("join_updates", "multiply")
def join_updates(function: FunctionExpr) -> FunctionExpr:
    """Put sgd in place of a step of gradient descent with momentum, whose results replace a parameter and its velocity.
    Results stay the same up to rounding. Inside `with_dialect` nothing changes."""
    if modes.dialects is not None or not function.attrs.get(MUTATES):
        return function
    steps = {step.velocity: step for step in _steps(function)}
    velocities = {step.parameter: velocity for velocity, step in steps.items()}
    joined: dict[Var, Var] = {}

    def velocity(binding: Binding, scope: Scope) -> Expr | None:
        step = steps.get(binding.var)
        if step is None:
            return None
        joined[binding.var] = scope.call(get("sgd"), (*step.operands, step.rate, step.momentum, 0.0, False))
        return TupleGetItem(joined[binding.var], 1, binding.span)

    def parameter(binding: Binding, scope: Scope) -> Expr | None:
        del scope
        joint = joined.get(velocities[binding.var]) if binding.var in velocities else None
        return None if joint is None else TupleGetItem(joint, 0, binding.span)

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        return velocity(binding, scope) or parameter(binding, scope)

    rules: dict[str, Rule] = {"add": rule, "subtract": rule}
    return rewrite(function, counted("join_updates", by_op(rules)))


@record
class _MomentumStep:
    """velocity, parameter: the variables of the new values.  operands: x, dx and v of sgd."""

    velocity: Var
    parameter: Var
    operands: tuple[Atom, Atom, Atom]
    rate: float
    momentum: float


def _steps(function: FunctionExpr) -> list[_MomentumStep]:
    """The steps of gradient descent with momentum among the writes of a function."""
    counts = use_counts(function)
    calls = {b.var: b.value for b in walk(function) if isinstance(b.value, Call)}
    results = function.body.results
    mutated: dict[int, int] = function.attrs[MUTATES]
    written = {results[i]: function.params[p] for i, p in mutated.items()}
    candidates = (_step(new, x, written, calls, counts) for new, x in written.items() if isinstance(new, Var))
    steps = [step for step in candidates if step is not None]
    shared = Counter(step.velocity for step in steps)
    return [step for step in steps if shared[step.velocity] == 1]


def _step(
    new: Var, x: Var, written: Mapping[Any, Var], calls: Mapping[Var, Call], counts: Counter[Var]
) -> _MomentumStep | None:
    """The step whose new parameter a variable is; None for others."""
    kind, change = x.type, plain_call(calls.get(new), "subtract", "add")
    if change is None or not isinstance(kind, TensorType) or kind.dtype not in _DTYPES or change.args[0] is not x:
        return None
    scaled = _scaled(change.args[1], calls, counts)
    velocity: Any = scaled[0] if scaled is not None else None
    total = plain_call(calls.get(velocity), "add") if velocity in written else None
    if scaled is None or total is None:
        return None
    for decayed, dx in (total.args[:2], total.args[1::-1]):
        kept = _scaled(decayed, calls, counts)
        v: Any = written[velocity]
        if kept is not None and kept[0] is v and v is not x and getattr(dx, "type", None) == kind == v.type:
            rate = scaled[1] if change.op_name == "subtract" else -scaled[1]
            return _MomentumStep(velocity, new, (x, dx, v), rate, kept[1])
    return None


def _scaled(value: Any, calls: Mapping[Var, Call], counts: Counter[Var]) -> tuple[Any, float] | None:
    """x and number of x * number, where only one operator reads the product."""
    product = plain_call(calls.get(value), "multiply") if isinstance(value, Var) and counts[value] == 1 else None
    if product is None:
        return None
    for x, number in (product.args[:2], product.args[1::-1]):
        if isinstance(number, (int, float)) and isinstance(x, Var):
            return x, float(number)
    return None
