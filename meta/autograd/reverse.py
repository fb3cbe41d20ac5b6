"""Reverse mode inside of levels: a level that records calls, and the walk back over them.

The gradient rules are the same as on the tape. They compute with tensors of the enclosing level, so that gradients can
be differentiated again, batched, and traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from meta.autograd.levels import Level, Lifted, call, check_in_place, is_tensor
from meta.autograd.lifted_calls import function_call
from meta.eager.bases import TypedTensor
from meta.eager.gradient_graph import check_versions
from meta.eager.seeds import add_up
from meta.eager.tape import versions_of
from meta.modes import modes
from meta.op.grad.rule import GradRule, as_tuple, gradient_rule, rule_for
from meta.op.registry import Op, as_type
from meta.tree import is_sequence, is_tuple, paired

_next_order = count().__next__


class GradientSource:
    """Where gradients end: an argument of the function."""

    __slots__ = ()


class Slot(NamedTuple):
    """A value that gradients arrive at: a result of a call, or a source."""

    node: RecordedCall | GradientSource
    result: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """A call whose gradient may be requested.

    order: rises with every call.  args, outs: what the rule reads, types of the rest.
    parents: for each differentiable argument its slot, None for a constant; for a list of tensors a list of those.
    flows: the results that gradients flow from.  versions: of the arrays among args and outs.
    """

    order: int
    rule: GradRule
    args: tuple[Any, ...]
    outs: tuple[Any, ...]
    parents: tuple[Slot | list[Slot | None] | None, ...]
    flows: frozenset[int]
    versions: tuple[tuple[Any, int], ...]

    def gradients(self, dys: dict[int, Any]) -> Iterator[tuple[Slot, Any]]:
        """The gradient of each parent. dys: gradients of the results that any arrived at."""
        needs = tuple(parent is not None for parent in self.parents)
        rule = self.rule
        rule.check_available(needs)
        check_versions(rule.op, self.versions)
        gradients = rule.function(needs, *rule.operands(self.args, self.outs, dys, self.flows))
        return paired(self.parents, gradients)


class Tracked(Lifted):
    """A tensor whose gradient may be requested. slot: the value that it has at present, None for a constant."""

    __slots__ = ("slot",)

    def __init__(self, level: Level, value: Any, slot: Slot | None) -> None:
        super().__init__(level, value)
        self.slot = slot

    @property
    def is_constant(self) -> bool:
        return self.slot is None


class ReverseLevel(Level):
    """Records the calls that lead from the arguments of a function to its results."""

    name = "vjp"

    def interpret(self, op: Op, args: tuple[Any, ...]) -> Any:
        check_in_place(self, op, args)
        values = self.values(args)
        out: Any = call(op, values)
        rule = gradient_rule(op.name)
        results = as_tuple(out)
        if rule is None or not modes.grad_enabled or not all(map(is_tensor, results)):
            return out
        lifted = self.recorded(rule_for(rule, results), args, values, results)
        return lifted if isinstance(out, tuple) else lifted[0]

    def interpret_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        values = self.values(args)
        called = function_call(function, values, tuple(map(self.owns, args)))
        if not modes.grad_enabled:
            return called.returned
        return called.rebuilt(self.recorded(called.rule(), args, values, called.results))

    def recorded(self, rule: GradRule, args: Any, values: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results as tensors of this level. values: the arguments in the enclosing level."""
        parents = tuple(self._parent(args[p]) for p in rule.differentiable)
        flows = rule.flowing(results)
        if not flows or all(parent is None for parent in parents):
            return results
        saved = tuple(_saved(a) if i in rule.saved_args else as_type(a) for i, a in enumerate(values))
        outs = tuple(_saved(y) if rule.saves(i) else y.type for i, y in enumerate(results))
        node = RecordedCall(_next_order(), rule, saved, outs, parents, flows, versions_of((*saved, *outs)))
        return tuple(Tracked(self, y, Slot(node, i)) if i in flows else y for i, y in enumerate(results))

    def _parent(self, arg: Any) -> Any:
        if is_tuple(arg):
            slots = [self._parent(x) for x in arg]
            return slots if any(slot is not None for slot in slots) else None
        return arg.slot if self.owns(arg) else None

    def constant(self, x: Any) -> Lifted:
        return Tracked(self, x, None)


def _saved(x: Any) -> Any:
    """A value for the walk back: a tensor as it is now, which later writes in place do not reach."""
    if is_sequence(x):
        return tuple(map(_saved, x))
    return x.snapshot() if isinstance(x, TypedTensor) else x


def pull_back(outputs: Iterable[tuple[Slot, Any]], sources: Sequence[Slot]) -> list[Any]:
    """The gradients of `sources` for gradients of outputs; None where none arrives."""
    arrived: dict[Slot, Any] = {}
    heap: list[tuple[int, RecordedCall]] = []
    waiting: set[RecordedCall] = set()

    def add(slot: Slot, gradient: Any) -> None:
        node = slot.node
        arrived[slot] = add_up(arrived.get(slot), gradient)
        if isinstance(node, RecordedCall) and node not in waiting:
            waiting.add(node)
            heappush(heap, (-node.order, node))

    for slot, dy in outputs:
        add(slot, dy)
    while heap:
        node = heappop(heap)[1]
        dys = {i: arrived.pop(Slot(node, i)) for i in node.flows if Slot(node, i) in arrived}
        for slot, gradient in node.gradients(dys):
            add(slot, gradient)
    return [arrived.get(source) for source in sources]
