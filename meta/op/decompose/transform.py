"""Operators that join tensors or change the order of axes, and those that take a type or a shape from a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import meta
from meta.op.decomposition import decompose, decomposition
from meta.op.rules import moved, swapped

_like: Mapping[str, Callable[[Any, Any], Any]] = {
    "broadcast_to_like": lambda x, like: meta.broadcast_to(x, like.shape),
    "cast_like": lambda x, like: meta.cast(x, like.dtype),
}
_reordered: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "moveaxis": lambda x, source, destination: meta.transpose(x, moved(source, destination, x.ndim)),
    "swap_axis": lambda x, axis1, axis2: meta.transpose(x, swapped(axis1, axis2, x.ndim)),
}
decompose(_like, wide=False)
decompose(_reordered, wide=False)


@decomposition("stack", wide=False)
def stack(xs: Any, axis: int) -> Any:
    return meta.concatenate([meta.expand_dims(x, (axis,)) for x in xs], axis)
