"""Calls of an autograd.Function inside of levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meta.autograd.context import Context
from meta.autograd.levels import is_tensor
from meta.autograd.traced_calls import Kept, kept_tensors
from meta.autograd.user_calls import flowing, run_backward, run_forward
from meta.op.grad.rule import GradRule, as_tuple
from meta.op.registry import as_type
from meta.schema._dsl import TensorLike


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of an autograd.Function on the tensors of the enclosing level.

    returned: what `apply` returned.  results: its tensors.  flows: those that derivatives flow from.
    """

    function: Any
    args: tuple[Any, ...]
    returned: Any
    results: tuple[Any, ...]
    flows: frozenset[int]
    ctx: Context
    kept: Kept
    saved: Sequence[Any]

    def context(self, needs: Sequence[bool]) -> Context:
        """The values that `forward` saved for `backward`, with the results of `apply` among it."""
        return self.kept.context(self.ctx, tuple(needs), self.results, self.saved)

    def rule(self) -> GradRule:
        """The user's `backward` in the form of a gradient rule of an operator."""

        def gradients(needs: tuple[bool, ...], *args_outs_dys: Any) -> tuple[Any, ...]:
            return self.gradients(needs, args_outs_dys[len(args_outs_dys) - len(self.results) :])

        return GradRule(
            self.function.__name__, gradients, tuple(range(len(self.args))), outputs=len(self.results),
            differentiable_outputs=self.flows,
        )  # fmt: skip

    def gradients(self, needs: tuple[bool, ...], dys: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the arguments, by the user's `backward`."""
        types = tuple(as_type(a) if is_tensor(a) else None for a in self.args)
        return run_backward(self.function, self.context(needs), dys, needs, types, TensorLike)

    def rebuilt(self, results: Sequence[Any]) -> Any:
        """Results in the form in which `forward` returned them."""
        return tuple(results) if isinstance(self.returned, (list, tuple)) else results[0]


def function_call(function: Any, args: tuple[Any, ...], needs: tuple[bool, ...]) -> FunctionCall:
    """`function.apply(*args)`, and once more `forward`, for what it leaves for `backward`.

    needs: for each argument, whether a derivative flows to it."""
    returned = function.apply(*args)
    ctx = Context(function.__name__, needs)
    _, results = run_forward(function, ctx, args, TensorLike)
    flows = flowing(ctx, results)
    ctx._non_differentiable = ()
    sources, saved = kept_tensors(ctx, args, results)
    return FunctionCall(function, args, returned, as_tuple(returned), flows, ctx, sources, saved)
