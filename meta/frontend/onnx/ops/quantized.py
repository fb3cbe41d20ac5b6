"""Quantised numbers: the value of an integer q is (q - zero point) * scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_int
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import axis_of, dtype_of, row_shape
from meta.frontend.onnx.ops._windows import window_of
from meta.frontend.onnx.ops.conv import along_first, convolved
from meta.frontend.onnx.ops.matrix import per_row, shifted
from meta.frontend.quantized import check_scale, dequantized, quantized
from meta.functional._checks import as_dtype


def _blocks(value: Any, x: Tensor, axis: int, block_size: int) -> Any:
    """A scale or zero point; of blocks along an axis, repeated for each of their elements."""
    if value is None or value.ndim == 0 or not block_size:
        return value
    blocks = meta.repeat(value, block_size, axis)
    end = tuple(x.shape[axis] if i == axis else n for i, n in enumerate(blocks.shape))
    return meta.strided_slice(blocks, (0,) * x.ndim, end)


def _axis(node: Node, x: Tensor, scale: Any, axis: int) -> int:
    """The axis of scales; of a single one it does not matter, and may be out of range."""
    is_single = scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1 and not -x.ndim <= axis < x.ndim)
    return 0 if is_single else axis_of(node.op_type, axis, x.ndim)


@row("QuantizeLinear", since=10)
def quantize_linear(
    node: Node, x: Tensor, y_scale: Tensor, y_zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    """saturate is for floats of 8 bits, which are refused."""
    dtype = "uint8" if y_zero_point is None else y_zero_point.dtype
    if output_dtype and y_zero_point is None:
        dtype = dtype_of("QuantizeLinear", output_dtype)
    if not is_int(dtype):
        refuse(node, f"the result is {dtype}", "an integer dtype")
    place = _axis(node, x, y_scale, axis)
    check_scale(node.op_type, y_scale)
    scale, zero = (_blocks(v, x, place, block_size) for v in (y_scale, y_zero_point))
    wide = dtype_of("QuantizeLinear", precision) if precision else y_scale.dtype
    wide = wide if wide != "int32" else "float32"
    return quantized(node.op_type, as_dtype(x, wide), as_dtype(scale, wide), zero, place, dtype)


@row("DequantizeLinear", since=10, folds=False)
def dequantize_linear(
    node: Node, x: Tensor, x_scale: Tensor, x_zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Any:  # fmt: skip
    dtype = dtype_of("DequantizeLinear", output_dtype) if output_dtype else x_scale.dtype
    place = _axis(node, x, x_scale, axis)
    check_scale(node.op_type, x_scale)
    scale, zero = (_blocks(v, x, place, block_size) for v in (x_scale, x_zero_point))
    return dequantized(node.op_type, x, scale, zero, place, dtype)


@row("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node, x: Tensor) -> Any:
    """The range of x, with 0 in it, on 0 to 255; result, scale and zero point."""
    low, high = meta.minimum(meta.min(x), 0.0), meta.maximum(meta.max(x), 0.0)
    scale = meta.divide(meta.subtract(high, low), 255.0)
    divisor = meta.where(meta.equal(scale, 0.0), meta.ones_like(scale), scale)
    zero = meta.cast(meta.round(meta.clip(meta.negative(meta.divide(low, divisor)), 0.0, 255.0)), "uint8")
    return meta.quantize_linear(x, divisor, zero, "uint8"), scale, zero


def _rescaled(x: Tensor, ratio: Any, zero: Any, dtype: str) -> Any:
    return meta.quantize_linear(meta.multiply(meta.cast(x, "float32"), as_dtype(ratio, "float32")), 1.0, zero, dtype)


@row("QLinearMatMul", since=10)
def qlinear_matmul(
    node: Node, a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor,
) -> Any:  # fmt: skip
    """Products in 32 bits. Scales and zero points belong to all elements, to the rows of a or the columns of b."""
    product = meta.matmul(shifted(a, per_row(a_zero_point, a)), shifted(b, b_zero_point))
    scales = [as_dtype(s, "float32") for s in (per_row(a_scale, a), b_scale, per_row(y_scale, a))]
    ratio = meta.divide(meta.multiply(scales[0], scales[1]), scales[2])
    return _rescaled(product, ratio, per_row(y_zero_point, a), y_zero_point.dtype)


@row("QLinearConv", since=10)
def qlinear_conv(
    node: Node, x: Tensor, x_scale: Tensor, x_zero_point: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor, B: Tensor | None = None, *, kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    """Products in 32 bits. Scales and zero points of the weights belong to all or to an output channel each."""
    window = window_of("QLinearConv", x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    weights = shifted(w, along_first(w_zero_point, w))
    y = convolved(node, shifted(x, x_zero_point), weights, window, group)
    if B is not None:
        y = meta.bias_add(y, as_dtype(B, "int32"), 1)
    scale = w_scale
    if scale.ndim == 1 and scale.shape[0] != 1:
        scale = meta.reshape(scale, row_shape(scale.shape[0], 1, x.ndim))
    ratio = meta.divide(meta.multiply(x_scale, scale), y_scale)
    return _rescaled(y, ratio, y_zero_point, y_zero_point.dtype)
