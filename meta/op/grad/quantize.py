"""Gradients of quantised numbers: straight through the rounding, 0 where integers were limited.

q = round(x / scale) + zero point, limited to low and high        y = (q - zero point) * scale
dx     = dy where q needed no limit, else 0
dscale = dy * (y - x) / scale where q needed no limit, else dy * y / scale
"""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.op.grad.support import fit, widen


def _is_inside(x: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
    """Whether the integers of x needed no limit; false for NaN."""
    q = meta.round(widen(x) / scale) + zero_point
    return meta.logical_and(meta.greater_equal(q, float(low)), meta.less_equal(q, float(high)))


def fake_quantize_dx(x: Tensor, scale: Any, zero_point: Any, low: int, high: int, dy: Tensor) -> Tensor:
    return meta.where(_is_inside(x, scale, zero_point, low, high), dy, 0)


def fake_quantize_dscale(
    x: Tensor, scale: Tensor, zero_point: Any, low: int, high: int, y: Tensor, dy: Tensor
) -> Tensor:
    error = meta.where(_is_inside(x, scale, zero_point, low, high), widen(y) - widen(x), widen(y))
    return fit(widen(dy) * error / scale, scale)


def dequantize_linear_dscale(x: Tensor, scale: Tensor, zero_point: Any, dy: Tensor) -> Tensor:
    width = widen(dy)
    return fit(width * (meta.cast(x, width.dtype) - zero_point), scale)
