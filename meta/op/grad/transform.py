"""Gradients of operators that change the shape or the order of the axes, join or split."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.ir.type import TensorType


def transpose_grad(axes: tuple[int, ...] | None, dy: Tensor) -> Tensor:
    """The inverse order of the axes."""
    if axes is None:
        return meta.transpose(dy)
    order = [axis % len(axes) for axis in axes]
    return meta.transpose(dy, tuple(sorted(range(len(order)), key=order.__getitem__)))


def concatenate_grad(xs: tuple[TensorType, ...], axis: int, dy: Tensor) -> tuple[Tensor, ...]:
    """dy split at the bounds of the operands."""
    bounds: list[Any] = []
    for x in xs[:-1]:
        bounds.append((bounds[-1] if bounds else 0) + x.shape[axis])
    return meta.split(dy, tuple(bounds), axis)


def stack_grad(xs: tuple[TensorType, ...], axis: int, dy: Tensor) -> tuple[Tensor, ...]:
    """The slices of dy along the stacking axis, of that and the next as one: the parts then have memory of their own,
    which `.grad` keeps without a copy."""
    axis = axis % dy.ndim
    if axis == dy.ndim - 1:
        return tuple(meta.squeeze(part, axis) for part in meta.split(dy, len(xs), axis))
    joined = (*dy.shape[:axis], len(xs) * dy.shape[axis + 1], *dy.shape[axis + 2 :])
    return tuple(meta.split(meta.reshape(dy, joined), len(xs), axis))
