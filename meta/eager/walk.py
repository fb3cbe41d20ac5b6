"""The backward walk over the tape."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from meta.eager.gradient_graph import (
    A,
    Edge,
    Edges,
    GradientNode,
    GraphArray,
    Leaf,
    accumulate_lock,
    check_versions,
)
from meta.eager.seeds import check_replacement, check_seedless, freed, no_graph, ones_of, wrong_seed
from meta.modes import modes, scopes
from meta.parts import Writes
from meta.records import record
from meta.schema._dsl import TensorLike
from meta.tree import paired

Slot = tuple[GradientNode, int]
Pending = dict[GradientNode, dict[int, GraphArray]]
"""Gradients that arrived so far, by node and output index."""


def backward_of(y: GraphArray, dy: GraphArray | None, retain_graph: bool, create_graph: bool) -> None:
    """`backward` of one output."""
    if scopes.active and modes.trace is not None:
        modes.trace.backward(y, dy, retain_graph=retain_graph, create_graph=create_graph)
        return
    node = y._node
    if node is None:
        raise no_graph("backward", "the tensor")
    propagate({node: {y._index: seed_of("backward", y, dy)}}, None, retain_graph or create_graph, create_graph)


def root_of(y: GraphArray, where: str, name: str = "the tensor") -> Slot:
    node = y._node
    if node is None:
        raise no_graph(where, name)
    return node, y._index


def seed_of(where: str, y: GraphArray, dy: GraphArray | None, name: str = "the tensor") -> GraphArray:
    if dy is None:
        check_seedless(where, y, name)
        return ones_of(y)
    if getattr(dy, "_type", None) is not y._type:  # dy may be of any class
        raise wrong_seed(where, y._type, dy, name)
    if dy._version is None:
        mark_shared(dy)
    return dy


def mark_shared(gradient: A) -> A:
    """`gradient`, marked as shared memory: an array that counts its writes may have aliases."""
    if gradient._version is None:
        gradient._version = Writes((0,))
    return gradient


def propagate(start: Pending, slots: frozenset[Slot] | None, retain: bool, create: bool) -> dict[Slot, GraphArray]:
    """Propagate from `start`. With `slots`, collect their gradients and leave `.grad` alone."""
    route = None if slots is None else _route(start, slots)
    heap: list[tuple[int, GradientNode]] = []
    for node in start:
        heappush(heap, (node.order, node))
    collected: dict[Slot, GraphArray] = {}
    before = modes.grad_enabled
    modes.grad_enabled = create
    try:
        while heap:
            node = heappop(heap)[1]
            mine = start.pop(node)
            if node.hooks:
                _run_hooks(node, mine)
            if slots is not None:
                collected.update({(node, i): g for i, g in mine.items() if (node, i) in slots})
            if node.__class__ is Leaf:
                if slots is None:
                    _accumulate(node, mine[0], create)  # type: ignore[arg-type]
                continue
            if route is not None and node not in route.inner:
                continue
            for (target, index), gradient in _apply(node, mine, route, create):
                if target in start:
                    add_gradient(start[target], index, gradient)
                elif slots is None and target.__class__ is Leaf and not target.hooks:
                    _accumulate(target, gradient, create)  # type: ignore[arg-type]
                else:
                    start[target] = {index: gradient}
                    heappush(heap, (target.order, target))
            if not retain:
                node.args = node.outs = None
                node.versions = ()
    finally:
        modes.grad_enabled = before
    return collected


@record
class _Route:
    """The part of a graph between outputs and the inputs of wanted gradients."""

    targets: set[GradientNode]
    """The nodes of the wanted gradients."""
    inner: set[GradientNode]
    """Nodes with an edge to a target or to another inner node; only these are applied."""

    def takes(self, edge: Edge) -> bool:
        return edge is not None and (edge[0] in self.inner or edge[0] in self.targets)


def _route(start: Iterable[GradientNode], slots: frozenset[Slot]) -> _Route:
    route = _Route({node for node, _ in slots}, set())
    oldest = max((node.order for node in route.targets), default=0)
    stack = list(start)
    reached = set(stack)
    while stack:
        for target, _ in _flat_edges(stack.pop()):
            if target not in reached and target.order <= oldest:
                reached.add(target)
                stack.append(target)
    for node in sorted(reached, key=lambda n: -n.order):
        if any(map(route.takes, _flat_edges(node))):
            route.inner.add(node)
    return route


def _flat_edges(node: GradientNode) -> list[Slot]:
    out: list[Slot] = []
    for edge in node.edges:
        if edge is None:
            continue
        if isinstance(edge, list):
            out.extend(e for e in edge if e is not None)
        else:
            out.append(edge)
    return out


_ALL = (True,)


def _apply(
    node: GradientNode, mine: dict[int, GraphArray], route: _Route | None, create: bool
) -> Iterable[tuple[Slot, GraphArray]]:
    """The gradients of a node's inputs, each with where it goes."""
    rule, args, outs = node.rule, node.args, node.outs
    if args is None or outs is None:
        raise freed(rule.op)
    for x, then in node.versions:  # inline, as `check_versions` takes a call for each node
        count = x._version
        if count is not None and count[0] != then:
            check_versions(rule.op, node.versions)
    edges = node.edges if route is None else _pruned(node.edges, route)
    needs = _ALL if len(edges) == 1 else tuple([edge is not None for edge in edges])
    if create and rule.saved_outputs:
        outs = _connected(node, outs)
    if rule.unavailable:
        rule.check_available(needs)
    if rule.absent is None:
        return paired(edges, rule.function(needs, *rule.operands(args, outs, mine, rule.flowing(outs))))
    gradients = (rule.function if create else rule.eager)(needs, *args, *outs, mine[0], *rule.absent)
    if needs is _ALL and gradients[0] is not None and edges[0].__class__ is not list:
        return ((edges[0], gradients[0]),)  # type: ignore[return-value]
    return paired(edges, gradients)


def _pruned(edges: Edges, route: _Route) -> Edges:
    """`edges` with None for those that lead to no wanted gradient."""
    out: list[Any] = []
    for edge in edges:
        if isinstance(edge, list):
            taken_edges = [e if route.takes(e) else None for e in edge]
            out.append(taken_edges if any(taken_edges) else None)
        else:
            out.append(edge if route.takes(edge) else None)
    return tuple(out)


def _connected(node: GradientNode, outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved outputs that gradients flow from as part of the graph again, for gradients of gradients."""
    rule = node.rule
    flows = rule.flowing(outs)
    values = [i for i, saved in enumerate(outs) if i in flows and isinstance(saved, TensorLike)]
    return tuple(connected(node, i, saved) if i in values else saved for i, saved in enumerate(outs))


def connected(node: GradientNode, index: int, saved: GraphArray) -> GraphArray:
    """The alias of a node's output, saved for backward, as that output."""
    out = saved._alias()
    out._node, out._index = node, index
    return out


def add_gradient(slots: dict[int, GraphArray], index: int, gradient: GraphArray) -> None:
    before = slots.get(index)
    slots[index] = gradient if before is None else before + gradient


def _run_hooks(node: GradientNode, mine: dict[int, GraphArray]) -> None:
    for index, hooks in (node.hooks or {}).items():
        for hook in list(hooks):
            gradient = mine.get(index)
            if gradient is None:
                break
            replaced = hook(mark_shared(gradient))
            if replaced is not None:
                check_replacement(gradient, replaced)
                mine[index] = mark_shared(replaced)


def _accumulate(leaf: Leaf, gradient: GraphArray, create: bool) -> None:
    target = leaf.array()
    if target is None or (target._node is None and target._frozen):
        return
    accumulate_lock.acquire()  # `with` takes twice as long
    try:
        before = target._grad
        if before is not None:
            target._grad = before + gradient
        elif create:
            target._grad = gradient
        # Each `.grad` has its own memory: a gradient that counts its writes may be held elsewhere and is copied.
        elif gradient._version is None:
            gradient._version = Writes((0,))
            target._grad = gradient
        else:
            target._grad = gradient._copied()
    finally:
        accumulate_lock.release()
