"""Weights in 8 and 4 bits as floats, by bits and shapes; see meta.op.declare.linalg for how they are stored.

Of a row with groups of 4 weights in 4 bits, with a scale s for the first group:

    bytes       (w2 + 8) * 16 + w0 + 8,  (w3 + 8) * 16 + w1 + 8,  ...
    low bits    w0 + 8,  w1 + 8
    high bits   w2 + 8,  w3 + 8
    floats      w0 * s,  w1 * s,  w2 * s,  w3 * s,  ...

The reference dialect evaluates these functions, and exporters and the pass expand_quantized write them into
programs.
"""

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


@decomposition("dense_int8", wide=False)
def dense_int8(x: Any, w: Any, columns: int) -> Any:
    panels, quads, width, _ = w.shape
    rows = meta.reshape(meta.transpose(w, (0, 2, 1, 3)), (panels * width, quads * 4))
    weights = meta.strided_slice(rows, (0, 0), (columns, x.shape[-1]))
    return meta.dense(meta.cast(x, "int32"), meta.cast(weights, "int32"))
