"""`backward` and `grad` inside a traced function: the counterpart of meta.eager.engine on symbols."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray
from meta.eager.seeds import (
    add_up,
    apart,
    check_replacement,
    check_seedless,
    check_used,
    freed,
    no_graph,
    output_name,
    outputs_with_seeds,
    tensors,
    wrong_seed,
)
from meta.errors import GradientError, combined
from meta.ir.expr import Atom, Call, Expr, Var
from meta.modes import GradMode
from meta.op.grad.rule import rule_of
from meta.op.registry import get
from meta.tracing.differentiate import Sweep, run_sweep
from meta.tracing.state import Trace
from meta.tracing.symbol import Symbol


class DifferentiatedTrace(Trace):
    """A trace in which the traced function may compute gradients."""

    def backward(
        self, outputs: object, dys: object = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Compute gradients for `meta.autograd.backward` and `y.backward` inside a traced function."""
        self._refuse_inside("backward is called")
        _backward(self, outputs, dys, retain_graph or create_graph, create_graph)

    def grad(
        self, outputs: object, inputs: object, dys: object = None, *, retain_graph: bool = False,
        create_graph: bool = False, allow_unused: bool = False,
    ) -> tuple[Symbol | None, ...]:  # fmt: skip
        """Compute gradients for `meta.autograd.grad` inside a traced function."""
        bound = {binding.var for binding in self.builder.bindings}
        if not all(set(_variables(self, x)) <= bound for x in tensors("grad", "inputs", inputs)):
            self._refuse_inside("grad is called with inputs from outside")
        return _grad(self, outputs, inputs, dys, retain_graph or create_graph, create_graph, allow_unused)


def _backward(trace: Trace, outputs: object, dys: object, retain: bool, create: bool) -> None:
    """Accumulate the gradients of the outputs into what requires them, in the trace."""
    leaves = dict(trace.leaves())
    with GradMode(create):
        seeds = _seeds(trace, "backward", outputs, dys)
        sweep = _run(trace, "backward", seeds, frozenset(leaves), retain)
        totals: dict[int, tuple[Any, Any]] = {}
        for var, gradient in sweep.gradients.items():
            if var in leaves:
                x = leaves[var]
                totals[id(x)] = x, add_up(totals.get(id(x), (x, None))[1], gradient)
        for x, gradient in totals.values():
            # A new symbol, since the function may write to the gradient.
            trace.set_gradient(x, Symbol(add_up(trace.gradient(x), _hooked(x, gradient)).atom))


def _grad(
    trace: Trace, outputs: object, inputs: object, dys: object, retain: bool, create: bool, allow_unused: bool
) -> tuple[Symbol | None, ...]:
    """The gradients of the outputs with respect to the inputs, in the trace."""
    leaves = dict(trace.leaves())
    variable_groups = [_variables(trace, x) for x in tensors("grad", "inputs", inputs)]
    with GradMode(create):
        sources = frozenset(v for group in variable_groups for v in group)
        seeds = _seeds(trace, "grad", outputs, dys)
        sweep = _run(trace, "grad", seeds, sources, retain, frozenset(leaves))
        gradients: list[Any] = [reduce(add_up, map(sweep.gradients.get, group), None) for group in variable_groups]
    check_used(gradients, allow_unused)
    return tuple(apart(gradients, ()))


def _variables(trace: Trace, x: Any) -> list[Var]:
    """The variable whose gradient is the one of `x`, in a list; none for a constant."""
    atom = trace.history(trace.current(x, "grad"))
    return [atom] if isinstance(atom, Var) else []


def _run(
    trace: Trace,
    where: str,
    seeds: Mapping[Atom, Any],
    sources: frozenset[Var],
    retain: bool,
    ends: frozenset[Var] | None = None,
) -> Sweep:
    problems: list[GradientError] = []
    flowing = {atom: seed for atom, seed in seeds.items() if trace.history(atom) is not None}
    sweep = run_sweep(trace.builder, flowing, sources, problems, ends, trace.overwritten)
    stopped = [i for i, atom in enumerate(seeds) if atom not in sweep.active or atom not in flowing]
    if where == "backward" and stopped:
        raise no_graph(where, output_name(stopped[0], len(seeds)))
    if problems:
        raise combined(problems)
    freed_before = [b for b in sweep.visited if b.var in trace.freed]
    if freed_before:
        raise freed(_function_name(freed_before[0].value))
    if not retain:
        trace.freed.update(b.var for b in sweep.visited)
    return sweep


def _function_name(value: Expr) -> str:
    """The function that the user called, for errors."""
    rule = rule_of(value.op) if isinstance(value, Call) else None
    return "cond" if rule is None else rule.op


def _seeds(trace: Trace, where: str, outputs: object, dys: object) -> dict[Atom, Symbol]:
    """The outputs as atoms, each with its incoming gradient."""
    seeds: dict[Atom, Any] = {}
    pairs = outputs_with_seeds(where, outputs, dys)
    for i, (y, dy) in enumerate(pairs):
        atom = trace.attached(y, where)
        seeds[atom] = add_up(seeds.get(atom), _seed(trace, where, y, dy, output_name(i, len(pairs))))
    return seeds


def _seed(trace: Trace, where: str, y: Any, dy: Any, name: str) -> Symbol:
    if not dtypes.is_inexact(y.dtype):
        raise GradientError(where, f"{name} has dtype {y.dtype}", "floating and complex dtypes")
    if dy is None:
        check_seedless(where, y, name)
        return trace.emit(get("ones"), (y.shape, y.dtype, y.device))
    if not isinstance(dy, (NDArray, Symbol)) or dy.type is not y.type:
        raise wrong_seed(where, y.type, dy, name)
    return Symbol(trace.current(dy, where))


def _hooked(x: object, gradient: Symbol) -> Symbol:
    """The gradient of an array after the hooks that were put on it outside of the trace."""
    node: Any = getattr(x, "_node", None)
    hooks: list[Any] = [] if node is None or not node.hooks else list(node.hooks.get(0, ()))
    for hook in hooks:
        replaced = hook(gradient)
        if replaced is None:
            continue
        check_replacement(gradient, replaced)
        gradient = replaced
    return gradient
