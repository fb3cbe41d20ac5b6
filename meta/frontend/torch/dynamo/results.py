"""What a graph returns: arguments, tensors that its program computes, views of the memory of either, and numbers.

torch's fake tensors share storages as the real ones will, so that they say which of the results share memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from meta.frontend.torch.dynamo.memory import Layout, Order, is_constant, moved
from meta.frontend.torch.dynamo.shapes import NeedsTorch, covers_storage, dense_order, is_dense, storage_elements


@dataclass(frozen=True, slots=True)
class GraphResult:
    """A tensor that a program computes. layout: of its memory.  order: of its axes, in which the program has it.
    elements: of the storage, None where the layout covers it."""

    layout: Layout
    order: Order
    elements: Any


@dataclass(frozen=True, slots=True)
class Output:
    """What a graph returns at one place: the tensor at a position, where the results of the program come after the
    arguments, or a number.

    view: the layouts of the tensor and of the view of its memory that is returned; None for the tensor itself."""

    position: int | None = None
    number: Any = None
    view: tuple[Layout, Layout] | None = None


def storage(value: torch.Tensor) -> Any:
    """The identity of the storage of a fake tensor. Raises NeedsTorch for one that has none, such as a sparse one."""
    if value.layout is not torch.strided:
        raise NeedsTorch(f"a tensor has the layout {value.layout}")
    return value.untyped_storage()._cdata


@dataclass(slots=True)
class ResultPlan:
    """The results of a graph, and which of them its program computes.

    roots: storage -> the first node that has it.  written: the placeholders that the graph overwrites.
    rearranged: nodes in other memory than torch says -> the order of their axes there; such results are added.
    saved: the names of results that only the backward graph reads. They are compact where their storage is not returned
        anyway: a slice does not keep the rest of its storage alive.
    results: node -> what the program computes, in the order in which it returns them."""

    nodes: Sequence[Any]
    placeholders: Sequence[Node]
    roots: Mapping[Any, Node]
    written: Mapping[Node, Node]
    rearranged: dict[str, Order]
    saved: Collection[str]
    results: dict[Node, GraphResult] = field(default_factory=dict[Node, GraphResult])

    def outputs(self) -> list[Output]:
        """An output for each node, in order."""
        targets = {write: placeholder for placeholder, write in self.written.items()}
        positions = {node: i for i, node in enumerate(self.placeholders)}
        shared = {self._root(n) for n in self.nodes if _is_tensor(n) and n not in targets and n.name not in self.saved}
        return [self._output(node, targets, positions, shared) for node in self.nodes]

    def _output(
        self, node: Any, targets: Mapping[Node, Node], positions: Mapping[Node, int], shared: Collection[Node]
    ) -> Output:
        if not isinstance(node, Node):
            return Output(number=node)
        if not _is_tensor(node):
            return Output(number=node.meta["val"])
        if node in targets:
            return Output(positions[targets[node]])
        root, layout = self._root(node), Layout.of(node.meta["val"])
        if root in positions and root not in self.written and root.name not in self.rearranged:
            base = Layout.of(root.meta["val"])
            return Output(positions[root], view=None if node is root else (base, layout))
        is_own = root in positions or root.name in self.rearranged
        is_own |= node.name in self.saved and (root not in shared or not is_dense(node.meta["val"]))
        if is_own:
            return Output(self._position(node, self._own(node)))
        result, start = self._whole(root), self._start(root)
        position = self._position(root, result)
        return Output(position, view=None if node is root else (result.layout, moved(layout, start)))

    def _root(self, node: Node) -> Node:
        """The node whose memory a tensor is in."""
        return self.roots.get(storage(node.meta["val"]), node)

    def _position(self, node: Node, result: GraphResult) -> int:
        self.results.setdefault(node, result)
        return len(self.placeholders) + list(self.results).index(node)

    def _whole(self, root: Node) -> GraphResult:
        value, start = root.meta["val"], self._start(root)
        is_whole = covers_storage(value) and isinstance(start, int) and start == 0
        elements = None if is_whole else storage_elements(value) + start
        return GraphResult(moved(Layout.of(value), start), dense_order(value), elements)

    def _start(self, root: Node) -> Any:
        """What torch's kernel adds to the offset that fake tensors have in a storage: the result of as_strided_scatter
        is laid out like its argument, from which AOTAutograd derives a view of an argument that it wrote to."""
        if root.target is not torch.ops.aten.as_strided_scatter.default:
            return 0
        source: Any = root.args[0]
        return source.meta["val"].storage_offset() + self._start(self._root(source)) - root.meta["val"].storage_offset()

    def _own(self, node: Node) -> GraphResult:
        """A result in memory that nothing shares: dense, in the order of its axes that it has in torch."""
        value = node.meta["val"]
        if node.name in self.rearranged:
            return GraphResult(Layout.compact(value, self.rearranged[node.name]), self.rearranged[node.name], None)
        order = dense_order(value)
        if node.name in self.saved and not (covers_storage(value) and is_constant(value.shape)):
            self.rearranged[node.name] = order
        return GraphResult(Layout.compact(value, order), order, None)


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)
