"""The nodes of a graph that matter: the writes that end it, and those that results are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from meta.frontend.torch.dynamo.targets import schema_name
from meta.frontend.torch.functions import CHECKS


def last_writes(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Placeholder -> the `copy_` to it that ends a graph: AOTAutograd writes each input once, after all that reads it.
    Other writes in place are not among them."""
    writes: dict[Node, Node] = {}
    for node in nodes:
        if node.target is torch.ops.aten.copy_.default and len(node.args) == 2:
            target, value = node.args
            if isinstance(target, Node) and isinstance(value, Node) and _is_last(node, target, value):
                writes[target] = node
    return writes


def _is_last(write: Node, target: Node, value: Node) -> bool:
    new, old = value.meta.get("val"), target.meta.get("val")
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor) or target.op != "placeholder":
        return False
    alike = new.dtype == old.dtype and new.shape == old.shape and new.device == old.device
    readers = [user for user in target.users if user is not write and user.op != "output"]
    returned = all(user.op == "output" for user in write.users)
    return alike and returned and all(user < write for user in readers)


def live_nodes(nodes: Sequence[Node], results: Iterable[Any]) -> set[Node]:
    """The nodes that results are computed from, and those with effects. Checks of sizes are none: Dynamo's guards have
    passed them."""
    live = {node for node in results if isinstance(node, Node)}
    for node in reversed(nodes):
        is_check = schema_name(node.target).removeprefix("aten::") in CHECKS
        if node in live or (node.op == "call_function" and node.is_impure() and not is_check):
            live.add(node)
            live.update(node.all_input_nodes)
    return live
