"""The tape: a node for each recorded operator call, linked to the nodes of its arguments."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, GradientError
from meta.ir.type import TensorType
from meta.modes import modes
from meta.op.registry import get

if TYPE_CHECKING:
    from meta.op.grad.rule import GradRule

Edge = tuple["Node", int] | None
"""The node and output index a gradient goes to; None for an argument that is not tracked."""
Edges = tuple["Edge | tuple[Edge, ...]", ...]
Hook = Callable[["NDArray"], "NDArray | None"]


class Node:
    """One recorded call, or (class Leaf) an array that gradients end in."""

    __slots__ = ("__weakref__", "args", "edges", "hooks", "order", "out_types", "outs", "rule", "versions")

    rule: GradRule
    edges: Edges
    order: int
    """Falls with every node made. A node is made after those that its edges lead to, so walking nodes by rising order
    meets each one after everything that was computed from it."""
    args: tuple[Any, ...] | None
    """Arguments in schema order: values that the gradient reads, types of the others. None once freed."""
    outs: tuple[Any, ...] | None
    out_types: tuple[TensorType, ...]
    versions: tuple[tuple[NDArray, int], ...]
    hooks: dict[int, list[Hook]] | None


class Leaf(Node):
    """An array created by the user that requires a gradient."""

    __slots__ = ("array",)

    array: weakref.ref[NDArray]


next_order = count(0, -1).__next__
accumulate_lock = RLock()
"""Held while a gradient is added to `.grad`, so that threads that share a leaf lose none."""


def table() -> dict[str, GradRule]:
    """The generated gradient rules by operator name."""
    global _rules
    if _rules is None:
        from meta._generated.gradients import RULES

        _rules = RULES
    return _rules


_rules: dict[str, GradRule] | None = None  # the generated rules import the operators, which import this module


def any_tracked(args: Iterable[Any]) -> bool:
    """Whether any array among `args` (lists are searched) is part of a graph."""
    for arg in args:
        if isinstance(arg, (tuple, list)):
            if any_tracked(arg):  # pyright: ignore[reportUnknownArgumentType]
                return True
        elif getattr(arg, "_node", None) is not None:
            return True
    return False


def record(op: str, result: Any, args: tuple[Any, ...]) -> Any:
    """Link `result`, just computed by `op` from `args` (schema order), into the graph; returns `result`.

    Nothing is recorded under `no_grad`, for operators without a gradient, or for results that are not floating."""
    if not modes.grad_enabled:
        return result
    rule, single = _plans.get(op) or _plan(op)
    if rule is None:
        return result
    saved = rule.saved_args
    if single:
        x = args[0]
        edges: Any = ((x._node, x._index),)
        kept = args if saved else (x._type, *args[1:])
        versions = ((x, _version(x)),) if saved else ()
    else:
        edges = _edges(rule, args)
        if edges is None:
            return result
        kept = tuple([a if i in saved else _type_only(a) for i, a in enumerate(args)])
        versions = versions_of([args[i] for i in saved]) if saved else ()
    node = Node()
    node.order = next_order()
    node.rule = rule
    node.hooks = None
    node.edges = edges
    node.args = kept
    node.versions = versions
    if rule.outputs != 1:
        return _record_many(node, rule, result)
    out_type = result._type
    if out_type.dtype not in dtypes.FLOATS:
        return result
    node.out_types = node.outs = (out_type,)
    if rule.saved_outputs:
        # An alias, because the result itself holds the node: saving it would make a cycle.
        alias = result._alias()
        node.outs = (alias,)
        node.versions = (*versions, (alias, alias._version[0]))
    result._node = node
    return result


_plans: dict[str, tuple[GradRule | None, bool]] = {}


def _plan(op: str) -> tuple[GradRule | None, bool]:
    """The rule of an operator, and whether its only tensor is its first argument, which makes recording cheap."""
    rule = table().get(op)
    args = get(op).schema.args
    single = (
        rule is not None and rule.differentiable == (0,) and [a.type.role for a in args if a.is_tensor] == ["tensor"]
    )
    _plans[op] = (rule, single and not args[0].type.optional)
    return _plans[op]


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


def _record_many(node: Node, rule: GradRule, results: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    node.out_types = tuple(r.type for r in results)
    # `outputs` is -1 for operators whose number of results depends on the call (split): all of them count.
    flows = range(len(results)) if rule.outputs < 0 else rule.differentiable_outputs
    keeps = frozenset(flows) if rule.outputs < 0 and rule.saved_outputs else rule.saved_outputs
    aliases = {i: results[i]._alias() for i in keeps}
    node.outs = tuple(aliases.get(i, r.type) for i, r in enumerate(results))
    node.versions = (*node.versions, *versions_of(aliases.values()))
    link(node, results, [i for i in flows if dtypes.is_float(results[i].dtype)])
    return results


def link(node: Node, results: Sequence[NDArray], indices: Iterable[int]) -> None:
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
    edges = edges_of(arg)
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
            out.append((value, _version(value)))
        elif value.__class__ in (tuple, list):
            out.extend(versions_of(value))
    return tuple(out)


def _version(x: NDArray) -> int:
    count = x._version
    return 0 if count is None else count[0]


def check_versions(node: Node) -> None:
    """Raise GradientError when a value saved for backward was written in place since."""
    for x, then in node.versions:
        count = x._version
        if count is not None and count[0] != then:
            raise GradientError(
                node.rule.op,
                f"a value of shape {x.shape} that its gradient needs was modified in place "
                f"(version {_version(x)}, saved at {then})",
                "values saved for backward to stay unchanged",
                "write to a copy, or call backward before the write",
            )


def written(op: str, x: NDArray) -> NDArray:
    """Check that `x` may be written in place, count the write, and return `x`.

    Raises GradientError for an array in a gradient graph while gradients are recorded."""
    if x._node is not None and modes.grad_enabled:
        what = "a leaf that requires grad" if isinstance(x._node, Leaf) else "computed from arrays that require grad"
        raise GradientError(
            op,
            f"the array of shape {x.shape} written in place is {what}",
            "arrays outside of any graph",
            "write under `with meta.no_grad():`, or to x.detach() of a copy",
        )
    count = x._version
    if count is None:
        x._version = [1]
    else:
        count[0] += 1
    return x


def set_requires_grad(x: NDArray, wanted: bool) -> None:
    """Start or stop accumulating gradients into `x.grad`. Raises GradientError for integers and computed arrays."""
    node = x._node
    if node is not None and not isinstance(node, Leaf):
        if wanted:
            return
        raise GradientError(
            "requires_grad", "the array was computed from others that require grad", "leaves only", "use x.detach()"
        )
    if wanted and not dtypes.is_float(x.dtype):
        raise GradientError("requires_grad", f"the array has dtype {x.dtype}", f"{', '.join(dtypes.FLOATS)}")
    if wanted and node is None:
        leaf = Leaf()
        leaf.order = next_order()
        leaf.edges = ()
        leaf.hooks = None
        leaf.array = weakref.ref(x)
        x._node = leaf
    elif not wanted:
        x._node = None


def register_hook(x: NDArray, hook: Hook) -> Callable[[], None]:
    """See NDArray.register_hook."""
    node, index = x._node, x._index
    if node is None:
        raise GradientError("register_hook", "the array does not require grad", "arrays that require grad")
    if not callable(hook):
        raise ArgumentError("register_hook", f"the hook is {type(hook).__name__}", "a function of the gradient")
    if node.hooks is None:
        node.hooks = {}
    hooks = node.hooks.setdefault(index, [])
    hooks.append(hook)

    def remove() -> None:
        if hook in hooks:
            hooks.remove(hook)

    return remove
