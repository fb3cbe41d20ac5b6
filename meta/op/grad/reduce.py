"""Gradients of reductions."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType
from meta.op import rules


def keep_axes(value: Any, x: TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    """A reduced tensor with its reduced axes back, as size 1."""
    if keepdims or value.ndim == x.ndim:
        return value
    return meta.reshape(value, rules.reduced_shape("sum", x.shape, axis, True))


def sum_grad(x: TensorType, axis: tuple[int, ...] | None, keepdims: bool, dy: Any) -> Any:
    """dy repeated over the reduced axes."""
    return meta.broadcast_to(keep_axes(dy, x, axis, keepdims), x.shape)
