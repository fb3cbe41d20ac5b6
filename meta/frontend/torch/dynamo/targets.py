"""The targets of Dynamo's nodes: their names, whether they draw random numbers, how they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node
from torch.utils import _pytree as pytree

_SAVES_STATE, _SETS_STATE = "run_and_save_rng_state", "run_with_rng_state"
"""Wrappers of a random operator that the backward pass repeats, as checkpointing asks: the first returns the state of
the generator as well, the second draws from that state. Their operator is the argument at 0 and at 1."""


def _wrapped(node: Node) -> int | None:
    """The position of the operator among the arguments of a wrapper, None for other nodes."""
    return {_SAVES_STATE: 0, _SETS_STATE: 1}.get(schema_name(node.target))


def reported_name(node: Node) -> str:
    """The name of what a node computes; for a wrapper, its operator's name."""
    place = _wrapped(node)
    return schema_name(node.target if place is None else node.args[place])


def declared(node: Node) -> Any:
    """The fake tensors that a node returns. AOTAutograd gives wrappers none; then the operator's are returned."""
    place = _wrapped(node)
    if place is None or "val" in node.meta:
        return node.meta.get("val")
    target, args, kwargs = node.args[place], node.args[place + 1 :], node.kwargs
    args, kwargs = pytree.tree_map(lambda x: x.meta["val"] if isinstance(x, Node) else x, (args, kwargs))
    mode = detect_fake_mode(pytree.tree_leaves((args, kwargs)))
    assert mode is not None, "a graph without fake tensors"
    with mode:
        value = target(*args, **kwargs)  # type: ignore[operator]  # an operator
    return (torch.get_rng_state(), value) if place == 0 else value


def is_random(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws random numbers. A dropout that drops nothing does not."""
    if _wrapped(node) is not None:
        return True
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    arguments = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | kwargs
    defaults = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    arguments = defaults | arguments
    if arguments.get("train") is False or arguments.get("training") is False:
        return False
    return not any(arguments.get(name) == 0 for name in ("dropout_p", "dropout")) and arguments.get("p", 1) != 0


def runnable(target: Any) -> Callable[..., Any]:
    """A function that runs a target. Custom operators are looked up in each call: they may be defined again."""
    if not isinstance(target, torch._ops.OpOverload) or not is_custom(target):
        return target
    namespace, _, operator_name = schema_name(target).partition("::")
    overload = target._overloadname

    def run(*args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(getattr(torch.ops, namespace), operator_name), overload)(*args, **kwargs)

    return run


def is_custom(target: Any) -> bool:
    """Whether a target comes from outside of torch, and so may depend on the strides of its arguments."""
    own = ("aten", "prims", "prim")
    return not isinstance(target, torch._ops.OpOverload) or schema_name(target).partition("::")[0] not in own


def schema_name(target: Any) -> str:
    """The name of an operator, `aten::add`; for a function, its own name."""
    schema = getattr(target, "_schema", None)
    return schema.name if schema is not None else str(getattr(target, "__name__", target))
