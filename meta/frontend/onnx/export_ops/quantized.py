"""Quantised numbers: ONNX has one scale for all elements, or one for each element of an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meta.dtype import int_range
from meta.frontend.onnx.export_ops._table import OnnxSite, row
from meta.ir.type import TensorType


def _step(call: OnnxSite, scale: Any, zero_point: Any, dtype: str) -> tuple[str, str, dict[str, int]] | None:
    """The names of scale and zero point, which has `dtype`, and the attributes for their axis; None if they vary along
    several axes."""
    x, *kinds = call.args[:3]
    shapes = [kind.shape if isinstance(kind, TensorType) else () for kind in kinds]
    axes = {i + x.ndim - len(shape) for shape in shapes for i, size in enumerate(shape) if size != 1}
    if len(axes) > 1 or not all(isinstance(x.shape[axis], int) for axis in axes):
        return None
    target = tuple(x.shape[axis] for axis in axes)

    def operand(position: int, value: Any, dtype: str) -> str:
        if not isinstance(kinds[position - 1], TensorType):
            return call.graph.constant(np.full(target, value), dtype)
        name, shape = call.operand(position, value, dtype), shapes[position - 1]
        count = math.prod(shape)
        if shape != target and count == math.prod(target):
            return call.node("Reshape", name, call.integers(target))
        return (
            name
            if shape == target
            else call.node("Expand", call.node("Reshape", name, call.integers((1,))), call.integers(target))
        )

    width = kinds[0].dtype if isinstance(kinds[0], TensorType) else "float32"
    return operand(1, scale, width), operand(2, zero_point, dtype), dict(zip(("axis",), axes, strict=False))


_DTYPES = {"int8", "uint8"}
_LATER = {"int16", "uint16"}
"""From opset 21 on."""


@row("quantize_linear")
def quantize_linear(call: OnnxSite, x: str, scale: Any, zero_point: Any, dtype: str) -> str | None:
    kind, width = call.types[0], call.args[1]
    if dtype not in _DTYPES | (_LATER if call.opset >= 21 else set()) or kind.dtype == "float64":
        return None
    step = _step(call, scale, zero_point, dtype)
    if step is None or (isinstance(width, TensorType) and width.dtype != kind.dtype):
        return None
    scale, zero_point, axis = step
    scale = call.cast(scale, "float32", kind.dtype) if not isinstance(width, TensorType) else scale
    return call.node("QuantizeLinear", x, scale, zero_point, **axis)


@row("dequantize_linear")
def dequantize_linear(call: OnnxSite, x: str, scale: Any, zero_point: Any) -> str | None:
    dtype = call.types[0].dtype
    if dtype not in _DTYPES | {"int32"} | (_LATER if call.opset >= 21 else set()) or call.dtype == "float64":
        return None
    if not _fits(call, zero_point, dtype):
        return None
    step = _step(call, scale, zero_point, dtype)
    return None if step is None else call.node("DequantizeLinear", x, *step[:2], **step[2])


def _fits(call: OnnxSite, zero_point: Any, dtype: str) -> bool:
    """Whether ONNX takes a zero point: it has the integers' dtype, and is 0 for integers of 32 bits."""
    kind = call.args[2]
    if dtype == "int32":
        return not isinstance(kind, TensorType) and not zero_point
    if isinstance(kind, TensorType):
        return kind.dtype == dtype
    low, high = int_range(dtype)
    return low <= zero_point <= high
