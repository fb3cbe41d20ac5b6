"""The tape: operator calls recorded as nodes of the gradient graph, linked to the nodes of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meta import dtype as dtypes
from meta.eager.gradient_graph import Edge, Edges, GradientNode, next_order, version_of
from meta.eager.ndarray import NDArray
from meta.modes import modes
from meta.op.grad.rule import GradRule, conjugated, gradient_rule
from meta.op.implementation import on_change
from meta.op.registry import USER, get
from meta.parts import Writes

_FLOATS = frozenset(dtypes.FLOATS)
_COMPLEX = frozenset(dtypes.COMPLEX)


def any_tracked(args: Iterable[Any]) -> bool:
    """Whether any array among `args` (lists are searched) is part of a graph.

    Not meta.tree, here and below: it runs in every recorded call."""
    for arg in args:
        if isinstance(arg, (tuple, list)):
            if any_tracked(arg):  # pyright: ignore[reportUnknownArgumentType]
                return True
        elif getattr(arg, "_node", None) is not None:
            return True
    return False


def record(op: str, result: Any, args: tuple[Any, ...]) -> Any:
    """Link `result`, just computed by `op` from `args` (schema order), into the graph; returns `result`.

    Nothing is recorded under `no_grad`, for operators without a gradient, or for results that are not floating or
    complex."""
    if not modes.grad_enabled:
        return result
    try:
        rule, single, pair = _plans[op]
    except KeyError:
        rule, single, pair = _plan(op)
    if rule is None:
        return result
    saved = rule.saved_args
    if single:
        x = args[0]
        edges: Any = ((x._node, x._index),)
        saved_args = args if saved else (x._type, *args[1:])
        versions: tuple[tuple[NDArray, int], ...] = ((x, version_of(x)),) if saved else ()
    else:
        edges = _edges(rule, args)
        if edges is None:
            return result
        saved_args = tuple([a if i in saved else _type_only(a) for i, a in enumerate(args)])
        versions = versions_of([args[i] for i in saved]) if saved else ()
    node = GradientNode()
    node.order = next_order()
    node.rule = rule
    node.hooks = None
    node.edges = edges
    node.args = saved_args
    if pair:
        y, constant = result
        node.outs = (y._type, constant)
        versions += ((constant, version_of(constant)),)
    elif rule.outputs != 1:
        node.versions = versions
        return _record_many(node, rule, result)
    else:
        y = result
        if rule.saved_outputs:
            alias: Any = _alias(y)
            node.outs = (alias,)
            versions += ((alias, alias._version[0]),)
        else:
            node.outs = (y._type,)
    node.versions = versions
    if y._type.dtype in _FLOATS:
        y._node = node
    elif y._type.dtype in _COMPLEX:
        node.rule = conjugated(rule)
        y._node = node
    return result


def _alias(result: NDArray) -> NDArray:
    """The form in which a node saves a result that holds the node: the result itself would make a cycle."""
    writes = result._version
    if writes is None:  # without the lock of NDArray._alias: no other thread has the result yet
        writes = result._version = Writes((0,))
    out = NDArray(result._data, result._type)
    out._version = writes
    return out


_plans: dict[str, tuple[GradRule | None, bool, bool]] = {}


def _plan(op: str) -> tuple[GradRule | None, bool, bool]:
    """The rule of an operator, and two facts that make recording cheap: whether its only tensor is its first argument,
    and whether its results are values and a constant that the gradient reads, such as their indices or a mask."""
    rule = gradient_rule(op)
    described = get(op)
    has_list = any(a.type.role == "tensors" for a in described.schema.args)
    if rule is not None and rule.outputs == 1 and not has_list and described.family != USER:
        from meta.eager.fused import FusedGradient  # which loads TVM

        rule.replace_eager(FusedGradient(rule))
    args = described.schema.args
    single = (
        rule is not None and rule.differentiable == (0,) and [a.type.role for a in args if a.is_tensor] == ["tensor"]
    )
    pair = (
        rule is not None
        and rule.outputs == 2
        and rule.differentiable_outputs == frozenset({0})
        and rule.saved_outputs == frozenset({1})
    )
    _plans[op] = (rule, single and not args[0].type.optional, pair)
    return _plans[op]


def _forget(op: str | None) -> None:
    """Look up the rule of an operator, None for every operator, anew at its next recorded call."""
    for name in list(_plans) if op is None else [op]:
        _plans.pop(name, None)


on_change(_forget)  # an operator that is removed or redefined loses its implementations as well


def _edges(rule: GradRule, args: tuple[Any, ...]) -> Edges | None:
    """Where the gradients of a call's arguments go, None if none goes anywhere."""
    out: list[Any] = []
    tracked = False
    for position in rule.differentiable:
        arg = args[position]
        if arg.__class__ is NDArray:
            node = arg._node
            edge: Any = None if node is None else (node, arg._index)
        else:
            edge = _edge_of_list(arg)
        tracked = tracked or edge is not None
        out.append(edge)
    return tuple(out) if tracked else None


def _record_many(node: GradientNode, rule: GradRule, results: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    flows = rule.flowing([y._type for y in results])
    outs: list[Any] = []
    for i, y in enumerate(results):
        out: Any = y._type
        if i in flows:
            y._node = node
            y._index = i
            if out.dtype in _COMPLEX:
                node.rule = conjugated(rule)
        if rule.saves(i):
            out = _alias(y) if i in flows else y
            node.versions += ((out, version_of(out)),)
        outs.append(out)
    node.outs = tuple(outs)
    return results


def link(node: GradientNode, results: Sequence[NDArray], indices: Iterable[int]) -> None:
    """Make the results at `indices` outputs of `node`."""
    for i in indices:
        results[i]._node = node
        results[i]._index = i


def edges_of(args: Iterable[Any]) -> tuple[Edge, ...]:
    """The edges to the arrays among `args`; lists are not searched."""
    return tuple([_edge(arg) for arg in args])


def _edge(arg: Any) -> Edge:
    node = arg._node if arg.__class__ is NDArray else None
    return None if node is None else (node, arg._index)


def _edge_of_list(arg: Any) -> Any:
    if arg.__class__ not in (tuple, list):
        return None
    edges = [_edge(item) for item in arg]
    return edges if any(edges) else None


def _type_only(arg: Any) -> Any:
    if arg.__class__ is NDArray:
        return arg._type
    return tuple([_type_only(item) for item in arg]) if arg.__class__ in (tuple, list) else arg


def versions_of(values: Iterable[Any]) -> tuple[tuple[NDArray, int], ...]:
    """Each array among `values` (lists are searched) with its count of in-place writes."""
    out: list[tuple[NDArray, int]] = []
    for value in values:
        if value.__class__ is NDArray:
            out.append((value, version_of(value)))
        elif value.__class__ in (tuple, list):
            out.extend(versions_of(value))
    return tuple(out)
