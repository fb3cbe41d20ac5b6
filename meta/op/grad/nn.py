"""Gradients of neural-network operators."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor


def softmax_dx_dy(y: Tensor, dy: Tensor, axis: int, dz: Tensor) -> Tensor:
    """Gradient of z = y * (dy - sum(y * dy)) with respect to y."""
    total = meta.sum(y * dy, axis, True)
    return dz * (dy - total) - dy * meta.sum(dz * y, axis, True)


def bias_add_dbias(axis: int, dy: Tensor) -> Tensor:
    """dy summed over all axes except the bias's axis."""
    others = tuple(a for a in range(dy.ndim) if a != axis % dy.ndim)
    return meta.sum(dy, others) if others else dy
