"""Weights in 8 and 4 bits as floats, by bits and shapes; see meta.op.declare.linalg for how they are stored."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import accumulation_dtype
from meta.op.decomposition import decomposition


@decomposition("dequantize_weight", wide=False)
def dequantize_weight(w: Any, scale: Any, dtype: str) -> Any:
    width = accumulation_dtype(dtype)
    *rows, packed = w.shape
    groups = scale.shape[-1]
    bytes_ = meta.reshape(w, (*rows, groups, packed // groups))
    if w.dtype == "int8":
        integers = meta.cast(bytes_, width)
    else:
        halves = (meta.bitwise_and(bytes_, 15), meta.right_shift(bytes_, 4))
        integers = meta.cast(meta.concatenate(halves, -1), width) - 8
    floats = integers * meta.expand_dims(meta.cast(scale, width), -1)
    return meta.cast(meta.reshape(floats, (*rows, packed if w.dtype == "int8" else packed * 2)), dtype)


@decomposition("quantized_dense", wide=False)
def quantized_dense(x: Any, w: Any, scale: Any, bias: Any) -> Any:
    return meta.dense(x, meta.dequantize_weight(w, scale, x.dtype), bias)
