"""How a graph with its gradients is divided: what the forward pass computes and saves, and the backward pass reads.

Views are never saved. The tensor that they are views of is, once, and the backward graph takes its parts again: three
views of one product would be three tensors otherwise, which each graph copies. Nor are operands of gradients that give
a shape alone, such as the log-probabilities of a loss.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch._functorch import config
from torch.fx import GraphModule, Node

from meta.frontend.torch.dynamo.memory import is_constant

_aten = torch.ops.aten
_SPLITS = (_aten.split.Tensor, _aten.split_with_sizes.default)
_SHAPES: Mapping[Any, int] = {
    _aten.nll_loss_backward.default: 1, _aten.nll_loss2d_backward.default: 1, _aten.avg_pool2d_backward.default: 1,
    _aten._adaptive_avg_pool2d_backward.default: 1, _aten.reflection_pad2d_backward.default: 1,
    _aten.replication_pad2d_backward.default: 1,
}  # fmt: skip
"""Gradients -> the position of an argument that they read the shape of, and no values."""


def partition_of(name: str) -> Callable[..., tuple[GraphModule, GraphModule]]:
    """The function that divides a graph, for a value of the option `partition`."""
    return _divided if name == "min_cut" else default_partition


def _divided(joint: GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[GraphModule, GraphModule]:
    """The graphs of the two passes that save the fewest bytes, and no views."""
    for node in list(joint.graph.nodes):
        _name_view(node)
        if node.target in _SHAPES:
            _leave_out_values(node, _SHAPES[node.target])
    with config.patch(recompute_views=True):
        return min_cut_rematerialization_partition(joint, inputs, **options)


def _leave_out_values(node: Node, place: int) -> None:
    """Give a node a constant of the type of an argument of known sizes, in place of its values."""
    x: Any = node.args[place]
    kind: torch.Tensor = x.meta["val"]
    if not is_constant(kind.shape) or kind.dim() == 0:
        return
    with node.graph.inserting_before(node):
        options: dict[str, Any] = {"dtype": kind.dtype, "device": kind.device}
        constant = node.graph.call_function(_aten.full.default, (list(kind.shape), 0), options)
    constant.meta |= {"val": kind.new_empty(kind.shape), "tensor_meta": x.meta.get("tensor_meta")}
    node.update_arg(place, constant)


def _name_view(node: Node) -> None:
    """Make a node a call of an operator that torch's partition knows as a view, where there is one that does the
    same."""
    if node.target is _aten.transpose.int:
        arguments: tuple[Any, ...] = node.args
        x, *pair = arguments
        rank = x.meta["val"].ndim
        first, second = (int(axis) % rank for axis in pair)
        order = list(range(rank))
        order[first], order[second] = second, first
        node.target, node.args = _aten.permute.default, (x, order)
    elif node.target is _aten._unsafe_view.default:
        node.target = _aten.view.default
    elif node.target is _aten.detach.default:
        node.target = _aten.alias.default
    elif node.target is operator.getitem:
        _name_section(node)


def _name_section(node: Node) -> None:
    """Make a section of a split, of known size, a slice."""
    whole, index = node.args
    if not isinstance(whole, Node) or whole.target not in _SPLITS or not isinstance(index, int):
        return
    arguments: list[Any] = [*whole.args, whole.kwargs.get("dim", 0)]
    axis = arguments[2]
    sizes = [part.shape[axis] for part in whole.meta["val"]]
    if all(isinstance(size, int) for size in sizes):
        starts = [0, *accumulate(sizes)]
        index %= len(sizes)
        node.target, node.args = _aten.slice.Tensor, (arguments[0], axis, starts[index], starts[index + 1])
