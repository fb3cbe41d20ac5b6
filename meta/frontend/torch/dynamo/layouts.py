"""The layout of activations that a forward graph saves for the backward graph: with channels last where the program
computes so, since each graph would transpose them otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from meta.frontend.torch.dynamo.memory import is_constant
from meta.frontend.torch.dynamo.results import storage
from meta.frontend.torch.dynamo.shapes import dense_order
from meta.ir.builder import Module
from meta.ir.expr import Call
from meta.passes.standard import standard


def last_channels(ndim: int) -> tuple[int, ...]:
    """The order of axes in which channels are last."""
    return (0, *range(2, ndim), 1)


def saved_places(module: GraphModule) -> range:
    """The places among the results of a forward graph that are for the backward graph."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context is not None else None
    if facts is None or facts.num_symints_saved_for_bw is None:
        return range(0)
    results: Sequence[object] = list(module.graph.output_node().args[0])  # type: ignore[arg-type]
    return range(*facts.tensors_saved_for_backwards_slice.indices(len(results)))


def saved_results(module: GraphModule) -> list[Node]:
    """The nodes that a forward graph returns only for the backward graph."""
    results: Sequence[object] = list(module.graph.output_node().args[0])  # type: ignore[arg-type]
    places = saved_places(module)
    others = {id(r) for i, r in enumerate(results) if i not in places}
    return [r for r in (results[i] for i in places) if isinstance(r, Node) and id(r) not in others]


def channel_candidates(module: GraphModule, saved: Sequence[Node]) -> list[Node]:
    """The saved results that are contiguous, of known sizes, in memory that the graph does not return besides, and with
    at least three axes. Empty for graphs without convolutions, whose programs never have channels last."""
    if not any(map(_is_convolution, module.graph.nodes)):
        return []
    results: Sequence[object] = list(module.graph.output_node().args[0])  # type: ignore[arg-type]
    tensors = [r for r in results if isinstance(r, Node) and isinstance(r.meta.get("val"), torch.Tensor)]
    uses = Counter(storage(r.meta["val"]) for r in dict.fromkeys(tensors))
    return [r for r in saved if _is_plain(r) and uses[storage(r.meta["val"])] == 1]


def _is_convolution(node: Node) -> bool:
    return node.target is torch.ops.aten.convolution.default


def _is_plain(node: Node) -> bool:
    value: Any = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return False
    is_static = is_constant(value.shape)
    return node.op != "placeholder" and is_static and value.ndim > 2 and dense_order(value) is None


def kept_results(module: Module) -> frozenset[int]:
    """The positions of the results of a program that are no transposes after the standard passes."""
    main = standard()(module).main
    values = {binding.var: binding.value for binding in main.body.bindings}
    return frozenset(i for i, r in enumerate(main.body.results) if not _is_transpose(values.get(r)))  # type: ignore[arg-type]


def _is_transpose(value: object) -> bool:
    return isinstance(value, Call) and value.op_name == "transpose"
