"""The layout of activations that a forward graph saves for the backward graph: with channels last where the program
computes so, and as parts of the tensor that the program computes where they are nearly all of it, since each graph
would copy them otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from meta.frontend.torch.dynamo.convert import Converted
from meta.frontend.torch.dynamo.memory import Layout, SavedPart, is_constant
from meta.frontend.torch.dynamo.results import GraphResult, Output, storage
from meta.frontend.torch.dynamo.shapes import dense_order
from meta.ir.builder import Module
from meta.ir.expr import MUTATES, Binding, Call, Tuple, TupleGetItem
from meta.passes.fold_views import TensorPart, parts_of
from meta.passes.standard import separate_results, standard


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


def with_parts(converted: Converted, saved: Collection[str]) -> tuple[Converted, dict[str, SavedPart]]:
    """A forward graph after the standard passes, which returns tensors in place of the saved results that are most of
    their elements, such as slices and transposes; and these results by name.

    saved: the names of results that only the backward graph reads."""
    module = separate_results(converted.record.module, standard()(converted.record.module))
    main = module.main
    results, found = list(main.body.results), parts_of(main)
    groups: dict[Any, list[tuple[int, TensorPart]]] = {}
    for i, (name, _) in enumerate(converted.computed):
        part = found.get(results[i])
        if name in saved and isinstance(part, TensorPart) and _is_piece(part) and part.source not in main.params:
            groups.setdefault(part.source, []).append((i, part))
    kept = {source: members for source, members in groups.items() if _fill_most(members) and source not in results}
    record = replace(converted.record, module=module)
    if not kept:
        return replace(converted, record=record, is_standard=True), {}
    parts: dict[str, SavedPart] = {}
    views: dict[int, tuple[Layout, Layout]] = {}
    firsts = {min(i for i, _ in members): source for source, members in kept.items()}
    for group, members in enumerate(kept.values()):
        for i, part in members:
            name, order = converted.computed[i]
            parts[name] = SavedPart(group, part.layout, order, tuple(map(_step, part.steps)))
            dtype = converted.results[i].layout.dtype
            views[i] = Layout.row_major(part.layout.source, dtype), parts[name].place(dtype)
    first_of = {i: min(j for j, _ in members) for members in kept.values() for i, _ in members}
    left = [i for i in range(len(results)) if first_of.get(i, i) == i]
    places = {i: left.index(first_of.get(i, i)) for i in range(len(results))}
    written = {places[i]: param for i, param in main.attrs.get(MUTATES, {}).items()}
    body = replace(main.body, result=Tuple(tuple(firsts.get(i, results[i]) for i in left)))
    attrs = {**main.attrs, MUTATES: written} if written else main.attrs
    module = module.with_function("main", replace(main, body=body, attrs=attrs))
    own = [i for i in left if i < len(converted.results)]
    return replace(
        converted, record=replace(record, module=module), is_standard=True,
        returned=tuple(range(len(own))),
        results=tuple(GraphResult(views[i][0], None, None) if i in views else converted.results[i] for i in own),
        computed=tuple(converted.computed[i] for i in own),
        outputs=tuple(_moved(each, converted.arguments, places, views) for each in converted.outputs),
    ), parts  # fmt: skip


def _moved(
    output: Output, arguments: int, places: Mapping[int, int], views: Mapping[int, tuple[Layout, Layout]]
) -> Output:
    """An output of the results that are left. views: of results that are parts."""
    if output.position is None or output.position < arguments:
        return output
    i = output.position - arguments
    return replace(output, position=arguments + places[i], view=views.get(i, output.view))


def _is_piece(part: TensorPart) -> bool:
    """Whether a part lacks elements of the tensor, and has none twice."""
    layout = part.layout
    distinct = all(n == 1 or s > 0 for n, s in zip(layout.shape, layout.strides, strict=True))
    return distinct and prod(layout.shape) < prod(layout.source)


def _fill_most(members: Sequence[tuple[int, TensorPart]]) -> bool:
    """Whether parts, one at the start, are nearly all of a tensor."""
    most_added = 1 / 8  # Share of a tensor that saving it in place of its parts may keep alive beside them.
    layouts = {part.layout for _, part in members}
    size = prod(members[0][1].layout.source)
    begins = any(layout.offset == 0 for layout in layouts)
    return begins and size * (1 - most_added) <= sum(prod(each.shape) for each in layouts) <= size


def _step(binding: Binding) -> tuple[str, tuple[Any, ...]] | int:
    value = binding.value
    if isinstance(value, TupleGetItem):
        return value.index
    assert isinstance(value, Call)
    return value.op_name, tuple(value.args[1:])
