"""Forward mode: a level whose tensors carry tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.autograd.levels import Level, Lifted, call, check_in_place, is_tensor
from meta.autograd.lifted_calls import FunctionCall, function_call
from meta.autograd.reverse import GradientSource, ReverseLevel, Slot, Tracked, pull_back
from meta.autograd.tangents import result_tangents
from meta.dtype import is_inexact
from meta.eager.seeds import ones_of, zeros_of
from meta.errors import GradientError
from meta.modes import GradMode, modes
from meta.op.grad.rule import as_tuple
from meta.op.registry import Op
from meta.tree import leaves_of, with_leaves


class Dual(Lifted):
    """A tensor and its tangent, of the same type."""

    __slots__ = ("tangent",)

    def __init__(self, level: Level, value: Any, tangent: Any) -> None:
        super().__init__(level, value)
        self.tangent = tangent

    @property
    def is_constant(self) -> bool:
        return self.tangent is None


class ForwardLevel(Level):
    """Computes tangents along with values. A tensor without a tangent is a constant."""

    name = "jvp"

    def interpret(self, op: Op, args: tuple[Any, ...]) -> Any:
        check_in_place(self, op, args)
        primals = self.values(args)
        out = call(op, primals)
        results = as_tuple(out)
        incoming = with_leaves(args, [self.tangent(x) for x in leaves_of(args)])
        tangents = result_tangents(op, primals, results, incoming)
        lifted = tuple(Dual(self, y, t) if is_tensor(y) else y for y, t in zip(results, tangents, strict=True))
        return lifted if isinstance(out, tuple) else lifted[0]

    def interpret_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        tangents = [self.tangent(arg) for arg in args]
        needs = tuple(t is not None for t in tangents)
        called = function_call(function, self.values(args), needs)
        outgoing = _tangents_of(called, tangents, needs)
        flows = [t is not None and i in called.flows for i, t in enumerate(outgoing)]
        pairs = zip(called.results, outgoing, flows, strict=True)
        return called.rebuilt([Dual(self, y, t) if flow else y for y, t, flow in pairs])

    def tangent(self, x: Any) -> Any:
        """The tangent of a tensor, None for a constant."""
        return x.tangent if self.owns(x) else None

    def constant(self, x: Any) -> Lifted:
        return Dual(self, x, None)

    @property
    def keeps_history(self) -> bool:
        return True

    def written_without_grad(self, old: Any, new: Any) -> Any:
        before, after = old.tangent, new.tangent
        if after is not None and before is not None:
            after = self.run_around(_written, before, after)
        return Dual(self, self.run_around(_written, old.value, new.value), after)

    def lowered(self, x: Any, axis: int = 0) -> list[Any]:
        value, tangent = self.values(x), self.tangent(x)
        if not is_inexact(value.dtype):
            return [value]
        return [value, zeros_of(value) if tangent is None else tangent]

    def raised(self, parts: list[Any], axis: int = 0) -> Any:
        return Dual(self, *parts) if len(parts) == 2 else parts[0]


def _written(old: Any, new: Any) -> Any:
    with GradMode(True):
        return meta.straight_through(new, old)


def _tangents_of(called: FunctionCall, tangents: Sequence[Any], needs: tuple[bool, ...]) -> Sequence[Any]:
    """The tangents of the results: by the static method `jvp` of the class, or by the transpose of its `backward`."""
    own = getattr(called.function, "jvp", None)
    if own is not None:
        floating = [is_tensor(a) and is_inexact(a.dtype) for a in called.args]
        filled = [
            zeros_of(a) if t is None and is_known else t
            for a, t, is_known in zip(called.args, tangents, floating, strict=True)
        ]
        outgoing = as_tuple(own(called.context(needs), *filled))
        if len(outgoing) != len(called.results):
            raise GradientError(
                called.function.__name__,
                f"jvp returned {len(outgoing)} tangents",
                f"one for each of the {len(called.results)} results of forward",
            )
        return outgoing
    level = ReverseLevel()
    sources = {i: Slot(GradientSource()) for i in sorted(called.flows)}
    with level.entered():
        modes.grad_enabled = True
        dys = [
            Tracked(level, level.run_around(ones_of, y), sources[i]) if i in sources else None
            for i, y in enumerate(called.results)
        ]
        gradients = called.gradients(needs, dys)
    pairs = [(g.slot, t) for g, t in zip(gradients, tangents, strict=True) if level.owns(g) and t is not None]
    arrived = dict(zip(sources, pull_back(pairs, list(sources.values())), strict=True))
    return [arrived.get(i) for i in range(len(called.results))]
