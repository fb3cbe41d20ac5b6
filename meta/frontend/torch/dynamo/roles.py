"""What CUDA graphs of a program do with its inputs and results: read in place, copy, keep, lend."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from meta.frontend.torch.dynamo.convert import Converted
from meta.frontend.torch.dynamo.layouts import saved_places
from meta.frontend.torch.dynamo.memory import Order, SavedPart
from meta.frontend.torch.dynamo.results import Output
from meta.frontend.torch.dynamo.shapes import is_dense
from meta.ir.type import TensorType, leaf_types


@dataclass(slots=True)
class Passed:
    """What the compiler of a forward graph tells the compiler of its backward graph, by the names of placeholders.

    stable: parameters and buffers, which mostly have the same memory.
    rearranged: activations that the forward graph returns in other memory than torch says, and the order of their axes
        there.
    kept: what the forward graph saves in memory that stays the same: views of parameters, and its own results.
    parts: activations that the forward graph returns as parts of larger tensors."""

    stable: set[str] = field(default_factory=set[str])
    rearranged: dict[str, Order] = field(default_factory=dict[str, Order])
    kept: set[str] = field(default_factory=set[str])
    parts: dict[str, SavedPart] = field(default_factory=dict[str, SavedPart])

    def clear(self) -> None:
        for each in (self.stable, self.rearranged, self.kept, self.parts):
            each.clear()


@dataclass(frozen=True, slots=True)
class Roles:
    """How recordings treat the inputs and results of a program.

    in_place: the inputs that they read or write where they are; others are copied.  fixed: inputs whose memory another
        program keeps.
    saved: the results that the backward graph reads.  visible: the results that callers get.
    are_lent: whether callers get the memory itself, as of gradients, or copies.
    kept: the names of saved values whose memory stays the same.
    outputs: of the graph; saved results come after all results."""

    in_place: Collection[int]
    fixed: Collection[int]
    saved: Collection[int]
    visible: Collection[int]
    are_lent: bool
    kept: Collection[str]
    outputs: Sequence[Output]

    def copied_bytes(self, converted: Converted) -> int:
        """The bytes that a call copies, of a program that returns all results."""
        main = converted.record.main
        moved = [p.type for i, p in enumerate(main.params) if i not in self.in_place]
        visible = [] if self.are_lent else [converted.returned.index(i) for i in self.visible]
        results = [main.body.results[i].type for i in visible]
        leaves = [leaf for kind in (*moved, *results) for leaf in leaf_types(kind)]
        return sum(int(t.nbytes) for t in leaves if isinstance(t, TensorType) and t.is_static)


def roles_of(module: GraphModule, kind: str, converted: Converted, passed: Passed) -> Roles:
    """The roles in a graph of a kind ("inference", "forward" or "backward")."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    result: Any = module.graph.output_node().args[0]
    nodes: Sequence[Any] = result if isinstance(result, (tuple, list)) else [result]
    known = passed.stable | passed.kept if kind == "backward" else passed.stable
    own = {
        i: placeholders[each.position] for i, each in enumerate(converted.inputs) if each.position < len(placeholders)
    }
    in_place = {i for i, node in own.items() if node.name in known and _is_compact(node, passed)}
    places = saved_places(module) if kind == "forward" else range(0)
    count, results = converted.arguments, len(converted.results)
    positions = [
        (j, output.position - count) for j, output in enumerate(converted.outputs) if output.position is not None
    ]
    saved = {j: r for j, r in positions if j in places and (r >= 0 or placeholders[r].name in passed.stable)}
    outputs = list(converted.outputs)
    for j, r in saved.items():
        if r >= 0:
            outputs[j] = replace(outputs[j], position=count + results + r)
    return Roles(
        in_place,
        fixed={i for i in in_place if own[i].name in passed.kept},
        saved=sorted({r for r in saved.values() if r >= 0}),
        visible=sorted({r for j, r in positions if j not in places and r >= 0}),
        are_lent=kind == "backward",
        kept={nodes[j].name for j in saved},
        outputs=outputs,
    )


def _is_compact(node: Node, passed: Passed) -> bool:
    """Whether the value of a placeholder is compact, in some order of its axes, as programs read it."""
    value: Any = node.meta["val"]
    if node.name in passed.rearranged or node.name in passed.parts:
        return True
    return isinstance(value, torch.Tensor) and is_dense(value) and not value.is_conj() and not value.is_neg()
