"""Calls of an autograd.Function on symbols: `forward` becomes part of the program, `backward` runs when a gradient
reaches the call, on the symbols of that gradient.

The values that `forward` left on its context are operands of the recorded call, so that programs which are copied,
rewritten or differentiated later pass `backward` their own values.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import meta
from meta import dtype as dtypes
from meta.autograd.context import Context
from meta.autograd.user_calls import flowing, record_node, run_backward, run_forward
from meta.eager.ndarray import NDArray
from meta.eager.tape import edges_of
from meta.modes import modes
from meta.op.grad.rule import GradRule
from meta.schema._dsl import TensorLike
from meta.tracing.function_op import function_op
from meta.tracing.symbol import Symbol
from meta.tree import Tree, flatten


def traced_call(function: Any, args: tuple[Any, ...]) -> Any:
    """`function.apply(*args)` while this thread records a program."""
    emit = modes.emit
    assert emit is not None
    args = tuple(Symbol(a.atom) if isinstance(a, Symbol) else a for a in args)  # the values before `forward` writes
    positions = tuple(i for i, a in enumerate(args) if isinstance(a, TensorLike))
    needs = tuple(modes.grad_enabled and i in positions and _may_need(a) for i, a in enumerate(args))
    ctx = Context(function.__name__, needs)
    returned, results = run_forward(function, ctx, args, TensorLike)
    if not any(needs):
        return returned
    flows = flowing(ctx, results)
    ctx._non_differentiable = ()
    saved_sources, saved = kept_tensors(ctx, args, results)
    call = _Call(function, ctx, len(args), positions, len(results), flows, saved_sources)
    reads = frozenset(source for source in saved_sources.sources if source is not None)
    rule = GradRule(
        function.__name__, call.gradients, tuple(range(len(positions))), saved_outputs=reads, outputs=len(results),
        differentiable_outputs=flows,
    )  # fmt: skip
    op = function_op(function.__name__, len(positions), len(saved), rule, call.run)
    emitted = emit(op, (*(args[i] for i in positions), results, *([saved] if saved else [])))
    fields = (emitted,) if len(results) == 1 else emitted
    out = tuple(y if i in flows else y.stop_gradient() for i, y in enumerate(fields))
    return out if isinstance(returned, (list, tuple)) else out[0]


def _may_need(x: Any) -> bool:
    """Whether a gradient may flow to a tensor: what requires one is known when the program is differentiated."""
    stopped = modes.trace is not None and isinstance(x, Symbol) and modes.trace.history(x.atom) is None
    return dtypes.is_inexact(x.dtype) and not stopped


@dataclass(frozen=True, slots=True)
class Kept:
    """The tensors that `forward` left on its context.

    trees: attribute -> its structure.  sources: for each tensor in order, the index of the result that it is, or None
    for the next of the saved operands."""

    trees: dict[str, Tree]
    sources: tuple[int | None, ...]

    def context(self, ctx: Context, needs: tuple[bool, ...], results: Sequence[Any], saved: Sequence[Any]) -> Context:
        """A copy of the context with other tensors in place."""
        out = copy(ctx)
        out.needs_input_grad = needs
        rest = iter(saved)
        tensors = iter([next(rest) if source is None else results[source] for source in self.sources])
        for name, tree in self.trees.items():
            setattr(out, name, tree.build(tensors))
        return out


def kept_tensors(ctx: Context, args: Sequence[Any], results: Sequence[Any]) -> tuple[Kept, tuple[Any, ...]]:
    """The attributes that `forward` set on `ctx`, and the saved operands."""
    trees: dict[str, Tree] = {}
    tensors: list[Any] = []
    for name, value in vars(ctx).items():
        leaves, tree = flatten(value, TensorLike)
        if leaves:
            trees[name] = tree
            tensors += [leaf for _, leaf in leaves]
    sources = tuple(next((i for i, r in enumerate(results) if r is x), None) for x in tensors)
    saved = [x for x, source in zip(tensors, sources, strict=True) if source is None]
    return Kept(trees, sources), tuple(_constant(x, args) for x in saved)


def _constant(x: Any, args: Sequence[Any]) -> Any:
    """A saved tensor, through which no gradient flows if `forward` computed it. A trace knows what that is."""
    computed = modes.trace is None and isinstance(x, Symbol) and not any(x is a for a in args)
    return x.stop_gradient() if computed else x


@dataclass(frozen=True, slots=True)
class _Call:
    """One recorded call. positions: indices of the tensors among the arguments of `forward`."""

    function: Any
    ctx: Context
    arity: int
    positions: tuple[int, ...]
    outputs: int
    flows: frozenset[int]
    kept: Kept

    def spread(self, tensors: Sequence[Any], missing: Any) -> tuple[Any, ...]:
        """A value for each argument of `forward`: one of `tensors` for a tensor, `missing` for others."""
        out = [missing] * self.arity
        for i, x in zip(self.positions, tensors, strict=True):
            out[i] = x
        return tuple(out)

    def parts(self, operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The tensors among the arguments, the results of `forward`, and what it saved."""
        n = len(self.positions)
        return operands[:n], operands[n], operands[n + 1] if len(operands) > n + 1 else ()

    def gradients(self, needs: tuple[bool, ...], *operands_outs_dys: Any) -> tuple[Any, ...]:
        """The gradients of the operands, in the form of a generated gradient function."""
        *operands, outs, dys = _divided(operands_outs_dys, self.outputs)
        inputs, _, saved = self.parts(operands)
        needed_inputs = self.spread(needs, False)
        ctx = self.kept.context(self.ctx, needed_inputs, outs, saved)
        types = self.spread([x.type for x in inputs], None)
        gradients = run_backward(self.function, ctx, dys, needed_inputs, types, TensorLike)
        return tuple(_symbol(gradients[i]) if needed_inputs[i] else None for i in self.positions)

    def run(self, *operands: Any) -> Any:
        """The call on arrays, as a node of the tape if gradients are recorded."""
        inputs, computed, saved = self.parts(operands)
        results = tuple(x.detach() for x in computed)
        args = self.spread(inputs, None)
        edges = edges_of(args) if modes.grad_enabled else ()
        if any(edges):
            ctx = self.kept.context(self.ctx, tuple(edge is not None for edge in edges), results, saved)
            record_node(self.function, ctx, args, edges, results, self.flows)
        return results[0] if len(results) == 1 else results


def _divided(values: Sequence[Any], outputs: int) -> tuple[Any, ...]:
    """operands, outputs and gradients of outputs in one sequence -> (*operands, outputs, gradients)."""
    first = len(values) - 2 * outputs
    return (*values[:first], values[first : first + outputs], values[first + outputs :])


def _symbol(gradient: Any) -> Any:
    """A gradient as a symbol; `backward` may return an array."""
    return meta.reshape(gradient, gradient.shape) if isinstance(gradient, NDArray) else gradient
