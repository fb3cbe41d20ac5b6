"""`backward` and `grad` inside a traced function: the counterpart of meta.eager.engine on symbols."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from meta import dtype as dtypes
from meta.autograd.api import GradMode
from meta.errors import ArgumentError, GradientError, TypeInferenceError, combined
from meta.ir.expr import Atom, Call, Var
from meta.modes import modes
from meta.schema._types import TensorLike
from meta.tracing.differentiate import Sweep, add_up, reached, run_sweep
from meta.tracing.symbol import Symbol
from meta.tracing.trace import Trace


def depends_on_leaves(trace: Trace, x: Symbol) -> bool:
    """Whether gradients flow from `x` to anything that requires them."""
    if trace.is_cut(x.atom):
        return False
    return x.atom in reached(trace.builder.bindings, frozenset(var for var, _ in trace.leaves()))


def backward(outputs: Any, dys: Any = None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
    """What `meta.autograd.backward` and `y.backward` do inside a traced function."""
    trace = _trace("backward")
    leaves = dict(trace.leaves())
    with GradMode(create_graph):
        seeds = _seeds("backward", outputs, dys)
        sweep = _run(trace, "backward", seeds, frozenset(leaves), retain_graph or create_graph)
        totals: dict[int, tuple[Any, Any]] = {}
        for var, gradient in sweep.gradients.items():
            if var in leaves:
                x = leaves[var]
                totals[id(x)] = x, add_up(totals.get(id(x), (x, None))[1], gradient)
        for x, gradient in totals.values():
            trace.set_grad(x, add_up(trace.grad(x), _hooked(x, gradient)))


def grad(
    outputs: Any, inputs: Any, dys: Any = None, *, retain_graph: bool = False, create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Symbol | None, ...]:  # fmt: skip
    """What `meta.autograd.grad` does inside a traced function."""
    trace = _trace("grad")
    leaves = dict(trace.leaves())
    wanted = [_standing(trace, leaves, x) for x in _sequence(inputs)]
    with GradMode(create_graph):
        sources = frozenset(v for group in wanted for v in group)
        seeds = _seeds("grad", outputs, dys)
        sweep = _run(trace, "grad", seeds, sources, retain_graph or create_graph, frozenset(leaves))
        found: list[Any] = [reduce(add_up, map(sweep.gradients.get, group), None) for group in wanted]
    for i, g in enumerate(found):
        if g is None and not allow_unused:
            raise GradientError(
                "grad",
                f"input {i} was not used to compute the outputs",
                "inputs in the graph of the outputs",
                "pass allow_unused=True to get None",
            )
    return tuple(found)


def _standing(trace: Trace, leaves: Mapping[Var, Any], x: Any) -> list[Var]:
    """The variables that stood for `x` so far."""
    atom = trace.current(x, "grad")
    known = [var for var, owner in leaves.items() if owner is x]
    return known or [v for v in (atom,) if isinstance(v, Var)]


def _run(
    trace: Trace,
    where: str,
    seeds: Mapping[Atom, Any],
    sources: frozenset[Var],
    retain: bool,
    ends: frozenset[Var] | None = None,
) -> Sweep:
    problems: list[GradientError] = []
    sweep = run_sweep(trace.builder, seeds, sources, problems, ends)
    if where == "backward" and not all(atom in sweep.active and not trace.is_cut(atom) for atom in seeds):
        raise GradientError(
            where,
            "the tensor does not depend on any that requires grad",
            "a tensor in a gradient graph",
            "set requires_grad = True on an array that it is computed from, outside of no_grad()",
        )
    if problems:
        raise combined(problems)
    again = [b for b in sweep.visited if b.var in trace.freed]
    if again:
        call = again[0].value
        assert isinstance(call, Call)
        raise GradientError(
            call.op_name,
            "the graph was freed by an earlier backward",
            "one backward a graph",
            "pass retain_graph=True to the first one",
        )
    if not retain:
        trace.freed.update(b.var for b in sweep.visited)
    return sweep


def _trace(where: str) -> Trace:
    if modes.trace is None:
        raise GradientError(where, "a symbol is differentiated outside of a trace", "a call inside a traced function")
    return modes.trace


def _sequence(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _seeds(where: str, outputs: Any, dys: Any) -> dict[Atom, Symbol]:
    """The outputs as atoms, each with its incoming gradient."""
    ys = _sequence(outputs)
    given = (None,) * len(ys) if dys is None else _sequence(dys)
    if len(given) != len(ys):
        raise GradientError(where, f"{len(given)} output gradients for {len(ys)} outputs", "one each")
    seeds: dict[Atom, Any] = {}
    trace = _trace(where)
    for y, dy in zip(ys, given, strict=True):
        atom = trace.current(y, where)
        seeds[atom] = add_up(seeds.get(atom), _seed(where, y, dy))
    return seeds


def _seed(where: str, y: Any, dy: Any) -> Symbol:
    if not dtypes.is_float(y.dtype):
        raise GradientError(where, f"the tensor has dtype {y.dtype}", "floating dtypes")
    if dy is None:
        if y.size != 1:
            raise GradientError(
                where,
                f"the tensor has shape {y.shape} and no gradient was given",
                "tensors with one element",
                "pass dy, or reduce with .sum()",
            )
        from meta._generated.functions import ones

        return ones(y.shape, dtype=y.dtype, device=y.device)  # type: ignore[return-value]
    if not isinstance(dy, TensorLike):
        given = type(dy).__name__
        raise ArgumentError(where, f"dy is {given}", "a tensor of the type of y", "wrap it: meta.array(...)")
    atom = _trace(where).current(dy, where)  # type: ignore[arg-type]
    if atom.type is not y.type:
        raise TypeInferenceError(
            where, f"dy is {atom.type!r}", f"the type of y: {y.type!r}", "reshape, cast or move dy"
        )
    return Symbol(atom)  # type: ignore[arg-type]


def _hooked(x: Any, gradient: Symbol) -> Symbol:
    """The gradient of an array after the hooks that were put on it outside of the trace."""
    node: Any = getattr(x, "_node", None)
    hooks: list[Any] = [] if node is None or not node.hooks else list(node.hooks.get(0, ()))
    for hook in hooks:
        replaced = hook(gradient)
        if replaced is None:
            continue
        if not isinstance(replaced, Symbol) or replaced.type is not gradient.type:
            shown = repr(replaced.type) if isinstance(replaced, Symbol) else type(replaced).__name__
            raise GradientError(
                "register_hook", f"a hook returned {shown}", f"None or a tensor of type {gradient.type!r}"
            )
        gradient = replaced
    return gradient
