"""Gradients of operators that change shape, type or place."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType


def transpose_grad(axes: tuple[int, ...] | None, dy: Any) -> Any:
    """The inverse order of the axes."""
    if axes is None:
        return meta.transpose(dy)
    order = [axis % len(axes) for axis in axes]
    return meta.transpose(dy, tuple(sorted(range(len(order)), key=order.__getitem__)))


def concatenate_grad(xs: tuple[TensorType, ...], axis: int, dy: Any) -> tuple[Any, ...]:
    """dy cut where the operands were joined."""
    cuts: list[Any] = []
    for x in xs[:-1]:
        cuts.append((cuts[-1] if cuts else 0) + x.shape[axis])
    return meta.split(dy, tuple(cuts), axis)


def stack_grad(xs: tuple[TensorType, ...], axis: int, dy: Any) -> tuple[Any, ...]:
    """The slices of dy along the axis that the operands were stacked on."""
    return tuple(meta.squeeze(part, axis) for part in meta.split(dy, len(xs), axis))
