"""Quantised numbers by roundings, sums and products.

    x = [0.26, -1.0], scale = 0.1, zero point = 3, uint8
    x / scale = [2.6, -10.0]        rounded [3, -10]        plus 3 [6, -7]        limited [6, 0]        back [0.3, -0.3]

Integers of 32 bits are limited in float64, which holds their range.
"""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import int_range
from meta.op.decompose._support import clamped, floating, promoted
from meta.op.decomposition import decomposition
from meta.schema._dsl import TensorLike


def _integers(x: Any, scale: Any, zero_point: Any, low: int, high: int, width: str) -> Any:
    """The integers of x, as floats of the dtype `width`."""
    x, scale = floating(x, scale)
    y = meta.cast(meta.round(x / scale), width)
    if isinstance(zero_point, TensorLike) or zero_point:
        y = y + _in(zero_point, width)
    return clamped(y, float(low), float(high))


def _in(value: Any, dtype: str) -> Any:
    tensor: Any = value if isinstance(value, TensorLike) else None
    return value if tensor is None else meta.cast(tensor, dtype)


@decomposition("quantize_linear")
def quantize_linear(x: Any, scale: Any, zero_point: Any, dtype: str) -> Any:
    width = "float64" if dtype.endswith("32") or x.dtype == "float64" else "float32"
    return meta.cast(_integers(x, scale, zero_point, *int_range(dtype), width), dtype)


@decomposition("dequantize_linear")
def dequantize_linear(x: Any, scale: Any, zero_point: Any) -> Any:
    if isinstance(zero_point, TensorLike) or zero_point:
        x = meta.cast(x, "int64" if x.dtype == "uint32" else "int32")
        x, zero_point = promoted(x, zero_point)
        x = x - zero_point
    return meta.cast(x, getattr(scale, "dtype", "float32")) * scale


@decomposition("fake_quantize")
def fake_quantize(x: Any, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    q = _integers(x, scale, zero_point, low, high, "float64" if x.dtype == "float64" else "float32")
    return meta.cast((q - _in(zero_point, q.dtype)) * scale, x.dtype)
