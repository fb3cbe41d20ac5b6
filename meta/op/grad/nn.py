"""Gradients of neural-network operators."""

from __future__ import annotations

from typing import Any

import meta


def softmax_dx_dy(y: Any, dy: Any, axis: int, dz: Any) -> Any:
    """Gradient of z = y * (dy - sum(y * dy)) with respect to y."""
    total = meta.sum(y * dy, axis, True)
    return dz * (dy - total) - dy * meta.sum(dz * y, axis, True)


def bias_add_dbias(axis: int, dy: Any) -> Any:
    """dy summed over all axes except the bias's axis."""
    others = tuple(a for a in range(dy.ndim) if a != axis % dy.ndim)
    return meta.sum(dy, others) if others else dy
