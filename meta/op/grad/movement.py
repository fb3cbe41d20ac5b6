"""Gradients of operators that repeat, reorder or frame the elements along axes."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import WHOLE
from meta.ir.type import TensorType


def repeat_grad(x: TensorType, repeats: int, axis: int | None, dy: Tensor) -> Tensor:
    """The sum over the copies of each element."""
    if axis is None:
        return meta.reshape(meta.sum(meta.reshape(dy, (x.size, repeats)), 1), x.shape)
    copies = axis % x.ndim + 1
    split = meta.reshape(dy, (*x.shape[:copies], repeats, *x.shape[copies:]))
    return meta.sum(split, copies)


def tile_grad(x: TensorType, reps: tuple[int, ...], dy: Tensor) -> Tensor:
    """The sum over the copies of the whole tensor."""
    rank = max(x.ndim, len(reps))
    sizes = (1,) * (rank - x.ndim) + x.shape
    counts = (1,) * (rank - len(reps)) + reps
    split = meta.reshape(dy, tuple(d for pair in zip(counts, sizes, strict=True) for d in pair))
    return meta.reshape(meta.sum(split, tuple(range(0, 2 * rank, 2))), x.shape) if rank else dy


def roll_grad(shift: tuple[int, ...], axis: tuple[int, ...], dy: Tensor) -> Tensor:
    """dy rolled back."""
    return meta.roll(dy, tuple(-s for s in shift), axis)


def pad_grad(x: TensorType, pad_width: tuple[int, ...], mode: str, dy: Tensor) -> Tensor:
    """dy without the padding. Padding that repeats elements adds its gradient to theirs, axis by axis."""
    if mode != "constant":
        for axis, (before, after) in enumerate(zip(pad_width[::2], pad_width[1::2], strict=True)):
            if before or after:
                shape = (*dy.shape[:axis], x.shape[axis], *dy.shape[axis + 1 :])
                source = _source_positions(x.shape[axis], before, after, mode, dy.device)
                dy = meta.take_dx(dy, source, shape, axis)
        return dy
    if min(pad_width, default=0) < 0:
        return meta.pad(dy, tuple(-width for width in pad_width))
    return meta.strided_slice(dy, pad_width[::2], tuple(-after or WHOLE for after in pad_width[1::2]))


def _source_positions(size: Any, before: int, after: int, mode: str, device: Any) -> Any:
    """For each element of a padded axis, the position of the element it repeats."""
    front, back = max(before, 0), max(after, 0)
    position = meta.arange(-front, size + back, 1, "int64", device)
    if min(before, after) < 0:  # a range from 2 to n has max(n - 2, 0) elements, which no rule compares with n - 2
        position = meta.pad(position, (min(before, 0), min(after, 0)))
    if mode == "wrap":
        removed = min(before, 0)
        return meta.mod(position + removed, size + removed + min(after, 0)) - removed
    if mode == "edge":
        return meta.minimum(meta.maximum(position, 0), size - 1)
    edge = int(mode == "symmetric")
    folded = meta.maximum(position, -position - edge)
    return meta.minimum(folded, -folded + (2 * (size - 1) + edge))
