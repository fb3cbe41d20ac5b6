"""The gradient graph: a node for each recorded operator call, and for each array that gradients end in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from meta import dtype as dtypes
from meta.eager.seeds import modified_error
from meta.errors import ArgumentError, GradientError
from meta.locks import new_lock
from meta.modes import modes
from meta.parts import Counted, Writes

if TYPE_CHECKING:
    from meta._generated.methods import Tensor
    from meta.ir.type import TensorType
    from meta.op.grad.rule import GradRule

Edge = tuple["GradientNode", int] | None
"""The node and output index a gradient goes to; None for an argument that is not tracked."""
Edges = tuple["Edge | list[Edge]", ...]
"""The edge of each differentiable argument; a list for a list of tensors."""
Hook = Callable[[Any], Any]
"""hook(gradient); what it returns, unless None, replaces the gradient."""


class GraphArray(Counted, Protocol):
    """An array as the graph sees it: its memory, its place in the graph, and its gradient (see NDArray)."""

    _data: Any
    _type: TensorType
    _node: GradientNode | None
    _index: int
    _grad: Any
    _frozen: bool

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def __add__(self, other: Any, /) -> GraphArray: ...

    def _alias(self) -> GraphArray: ...

    def _twin(self) -> GraphArray: ...

    def _copied(self) -> GraphArray: ...


A = TypeVar("A", bound=GraphArray)


class GradientNode:
    """One recorded call, or (class Leaf) an array that gradients end in."""

    __slots__ = ("__weakref__", "args", "edges", "hooks", "order", "outs", "rule", "versions")

    rule: GradRule
    edges: Edges
    order: int
    """Falls with every new node. A node is created after those that its edges lead to, so walking nodes by rising order
    meets each one after everything that was computed from it."""
    args: tuple[Any, ...] | None
    """Arguments in schema order: values that the gradient reads, types of the others. None once freed."""
    outs: tuple[Any, ...] | None
    """Results: values that the gradient reads, types of the others. None once freed."""
    versions: tuple[tuple[GraphArray, int], ...]
    hooks: dict[int, list[Hook]] | None


class Leaf(GradientNode):
    """An array created by the user that requires a gradient."""

    __slots__ = ("array",)

    array: weakref.ref[GraphArray]


next_order = count(0, -1).__next__
accumulate_lock = new_lock("gradients")
"""Held while a gradient is added to `.grad`, so that threads that share a leaf lose none."""


def version_of(x: Counted) -> int:
    """How often the memory of `x` was written in place."""
    count = x._version
    return 0 if count is None else count[0]


LEAF_REMEDY = "write under `with meta.no_grad():`, or to x.detach() of a copy"
"""For a write to a leaf of a graph."""


def check_versions(op: str, versions: Iterable[tuple[GraphArray, int]]) -> None:
    """Raise GradientError if a value that the gradient of `op` reads was written in place since it was saved.

    versions: the values, each with its count of writes at that time."""
    for x, then in versions:
        count = x._version
        if count is not None and count[0] != then:
            raise modified_error(op, x.shape, f" (version {count[0]}, saved at {then})")


def check_no_leaf(op: str, x: Any) -> None:
    """Raise GradientError for a leaf that requires gradients, which may not be written while they are recorded."""
    if isinstance(x._node, Leaf):
        raise written_leaf(op, x)


def written_leaf(op: str, x: Tensor) -> GradientError:
    """The error for a write to the leaf `x` of a graph."""
    return GradientError(
        op,
        f"the array of shape {x.shape} written in place is a leaf that requires grad",
        "arrays outside of any graph",
        LEAF_REMEDY,
    )


def record_write(op: str, x: A) -> A:
    """Check that `x` may be written in place, count the write, and return `x`.

    Raises GradientError for an array in a gradient graph while gradients are recorded."""
    if x._node is not None and modes.grad_enabled:
        check_no_leaf(op, x)
        raise GradientError(
            op,
            f"the array of shape {x.shape} written in place is computed from arrays that require grad",
            "arrays outside of any graph",
            LEAF_REMEDY,
        )
    count = x._version
    if count is None:
        x._version = Writes((1,))
    else:
        count[0] += 1
    return x


def set_requires_grad(x: GraphArray, required: bool) -> None:
    """Start or stop accumulating gradients into `x.grad`. Raises GradientError for integers and computed arrays."""
    node = x._node
    if node is not None and not isinstance(node, Leaf):
        if required:
            return
        raise GradientError(
            "requires_grad", "the array was computed from others that require grad", "leaves only", "use x.detach()"
        )
    if required and not dtypes.is_inexact(x.dtype):
        raise GradientError(
            "requires_grad", f"the array has dtype {x.dtype}", ", ".join(dtypes.INEXACT), 'write dtype="float32"'
        )
    if required and node is None:
        leaf = Leaf()
        leaf.order = next_order()
        leaf.edges = ()
        leaf.hooks = None
        leaf.array = weakref.ref(x)
        x._node = leaf
    elif not required:
        x._node = None


def register_hook(x: GraphArray, hook: Hook) -> Callable[[], None]:
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
