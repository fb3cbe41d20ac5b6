"""Operators that repeat and shift elements."""

from __future__ import annotations

from typing import Any

import meta
from meta.dim import WHOLE
from meta.op.decomposition import decomposition


@decomposition("repeat", wide=False)
def repeat(x: Any, repeats: int, axis: int | None) -> Any:
    """A new axis behind the repeated one is stretched."""
    if axis is None or x.ndim == 0:
        x, axis = meta.reshape(x, (-1,)), 0
    place, shape = axis % x.ndim + 1, x.shape
    wide = meta.broadcast_to(meta.expand_dims(x, (place,)), (*shape[:place], repeats, *shape[place:]))
    return meta.reshape(wide, (*shape[: place - 1], shape[place - 1] * repeats, *shape[place:]))


@decomposition("roll", wide=False)
def roll(x: Any, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """The last elements in front of the others."""
    for distance, a in zip(shift, axis, strict=True):
        size = x.shape[a]
        if not isinstance(size, int):
            return None
        cut, before = -distance % size if size else 0, (0,) * (a % x.ndim)
        if cut:
            whole = (WHOLE,) * len(before)
            tail = meta.strided_slice(x, (*before, cut), (*whole, WHOLE))
            x = meta.concatenate([tail, meta.strided_slice(x, (*before, 0), (*whole, cut))], a)
    return x
