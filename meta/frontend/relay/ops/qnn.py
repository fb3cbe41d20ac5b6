"""Quantised operators, as integer arithmetic.

A quantised tensor q represents scale * (q - zero point). Changing the scale multiplies by a ratio of two scales in
fixed point: an integer multiplier of 31 bits and a shift, rounded half up (B. Jacob et al., "Quantization and Training
of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.frontend.quantized import check_scale
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.folding import fold
from meta.frontend.relay.convert.tensor_layout import convert_layout
from meta.frontend.relay.ops.conv import convolved, product, transposed
from meta.frontend.relay.ops.pool import averaged
from meta.frontend.relay.ops.unary import clipped, rounded
from meta.functional._checks import as_dtype
from meta.tracing.symbol import Symbol


def _along(call: OpCall, value: Any, subject: str, x: Any, axis: int, constant_only: bool = True) -> Any:
    """A scale or zero point, of x or of each element of an axis of x, shaped to broadcast: an array if it is constant,
    else (unless `constant_only`) a tensor."""
    if not constant_only and fold(value, call.builder) is None:
        return value if value.size == 1 else meta.reshape(value, _row(x, axis, value.size))
    folded = call.constant(value, subject)
    if "scale" in subject:
        check_scale(call.name, folded)
    if folded.size == 1:
        return np.reshape(folded, ())
    return np.reshape(folded, _row(x, axis, folded.size))


def _row(x: Tensor, axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if i == axis % x.ndim else 1 for i in range(x.ndim))


def _scalar_or_tensor(value: Any, dtype: str) -> Any:
    """A scale or zero point as an operand: a number if it is one, else a tensor."""
    if isinstance(value, Symbol):
        return meta.cast(meta.reshape(value, ()) if value.size == 1 else value, dtype)
    value = value.astype(dtype)
    return value.item() if value.ndim == 0 else constant(value)


def _saturated(x: Any, dtype: str) -> Any:
    if dtype == "int32" and x.dtype == "int32":
        return x
    low, high = (int(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    return meta.cast(clipped(x, low, high), dtype)


@converter("qnn.quantize")
def quantize(call: OpCall) -> Any:
    x, scale, zero = call.tensors(3)
    axis, dtype = call.int("axis", -1), call.text("out_dtype", "int8")
    scales, zeros = (_along(call, v, w, x, axis, False) for v, w in ((scale, "scale"), (zero, "zero_point")))
    return _quantized(x, scales, zeros, dtype)


def _quantized(x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    y = rounded(meta.divide(x, _scalar_or_tensor(scale, "float32")))
    return meta.quantize_linear(y, 1.0, _scalar_or_tensor(zero, "int32"), dtype)


@converter("qnn.dequantize")
def dequantize(call: OpCall) -> Any:
    x, scale, zero = call.tensors(3)
    axis, dtype = call.int("axis", -1), call.text("out_dtype", "float32") or "float32"
    scales, zeros = (_along(call, v, w, x, axis, False) for v, w in ((scale, "scale"), (zero, "zero_point")))
    return as_dtype(_dequantized(x, scales, zeros), dtype)


def _may_shift(zero: Any) -> bool:
    """Whether a zero point may differ from 0."""
    return isinstance(zero, Symbol) or bool(zero.any())


def _dequantized(x: Tensor, scale: Any, zero: Any) -> Any:
    return meta.dequantize_linear(x, _scalar_or_tensor(scale, "float32"), _scalar_or_tensor(zero, "int32"))


def _shifted(x: Tensor, zero: Any) -> Any:
    """x - zero point, in 32 bits."""
    wide = as_dtype(x, "int32")
    return meta.subtract(wide, _scalar_or_tensor(zero, "int32")) if _may_shift(zero) else wide


@converter("qnn.requantize")
def requantize(call: OpCall) -> Any:
    x, scale, zero, out_scale, out_zero = call.tensors(5)
    axis, dtype = call.int("axis", -1), call.text("out_dtype", "int8")
    rounding = call.only("rounding", "UPWARD", "TONEAREST", "None", "", None, default="UPWARD")
    call.only("compute_dtype", "int64", "None", "", None, default="int64")
    scales = _along(call, scale, "input_scale", x, axis)
    ratio = scales.astype("float64") / float(call.number(out_scale, "output_scale"))
    y = _shifted(x, _along(call, zero, "input_zero_point", x, axis))
    return _requantized(y, ratio, int(call.number(out_zero, "output_zero_point")), dtype, rounding == "TONEAREST")


def _requantized(x: Any, ratio: np.ndarray[Any, Any], zero: int, dtype: str, nearest: bool = False) -> Any:
    y = scaled(x, ratio, nearest)
    return _saturated(meta.add(y, zero) if zero else y, dtype)


def scaled(x: Any, ratio: np.ndarray[Any, Any], nearest: bool = False) -> Any:
    """x times a ratio, in fixed point; `nearest` rounds halves away from zero instead of up."""
    if np.all(ratio == 1.0):
        return x
    parts = [_fixed_point(float(v)) for v in ratio.ravel()]
    multiplier = np.reshape(np.array([m for m, _ in parts], "int64"), ratio.shape)
    left = np.reshape(np.array([max(s, 0) for _, s in parts], "int64"), ratio.shape)
    right = np.reshape(np.array([31 - min(s, 0) for _, s in parts], "int64"), ratio.shape)
    wide = meta.cast(x, "int64")
    if left.any():
        wide = meta.left_shift(wide, _scalar_or_tensor(left, "int64"))
    half = np.left_shift(np.ones_like(right), right - 1)
    wide = meta.multiply(wide, _scalar_or_tensor(multiplier, "int64"))
    if nearest:
        below = _scalar_or_tensor(half - 1, "int64")
        above = _scalar_or_tensor(half, "int64")
        wide = meta.where(meta.less(wide, 0), meta.add(wide, below), meta.add(wide, above))
    else:
        wide = meta.add(wide, _scalar_or_tensor(half, "int64"))
    return meta.cast(meta.right_shift(wide, _scalar_or_tensor(right, "int64")), "int32")


def _fixed_point(value: float) -> tuple[int, int]:
    """(multiplier, shift) with value = multiplier / 2**31 * 2**shift and the multiplier using all 31 bits."""
    if value == 0.0:
        return 0, 0
    significand, shift = math.frexp(value)
    multiplier = math.floor(significand * (1 << 31) + 0.5)
    return (multiplier // 2, shift + 1) if multiplier == 1 << 31 else (multiplier, shift)


@converter("qnn.add", "qnn.subtract")
def add(call: OpCall) -> Any:
    """Both operands at the scale of the result."""
    x, y, x_scale, x_zero, y_scale, y_zero, scale, zero = call.tensors(8)
    for name in ("lhs_axis", "rhs_axis"):  # of scales per axis, which are refused
        call.get(name)
    out_scale, out_zero = float(call.number(scale, "output_scale")), int(call.number(zero, "output_zero_point"))
    terms: list[Any] = []
    for value, s, z in ((x, x_scale, x_zero), (y, y_scale, y_zero)):
        ratio = np.float64(np.float32(call.number(s, "scale"))) / out_scale
        terms.append(scaled(_shifted(value, np.asarray(call.number(z, "zero_point"))), np.asarray(ratio)))
    total: Any = (meta.add if call.name == "qnn.add" else meta.subtract)(*terms)
    return _saturated(meta.add(total, out_zero) if out_zero else total, x.dtype)


@converter("qnn.mul")
def mul(call: OpCall) -> Any:
    x, y, x_scale, x_zero, y_scale, y_zero, scale, zero = call.tensors(8)
    for name in ("lhs_axis", "rhs_axis"):  # of scales per axis, which are refused
        call.get(name)
    a = _shifted(x, np.asarray(call.number(x_zero, "lhs_zero_point")))
    b = _shifted(y, np.asarray(call.number(y_zero, "rhs_zero_point")))
    x_factor, y_factor = np.float32(call.number(x_scale, "lhs_scale")), np.float32(call.number(y_scale, "rhs_scale"))
    joint = np.multiply(x_factor, y_factor)
    ratio = np.asarray(np.divide(joint, float(call.number(scale, "output_scale")), dtype="float64"))
    return _requantized(meta.multiply(a, b), ratio, int(call.number(zero, "output_zero_point")), x.dtype)


@converter("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul")
def products(call: OpCall) -> Any:
    """Products of operands minus their zero points, in 32 bits; scales do not enter."""
    x, w, x_zero, w_zero = call.tensors(6)[:4]
    call.only("out_dtype", "int32", "", None)
    a = _shifted(x, _along(call, x_zero, "input_zero_point", x, 0, False))
    axis = (call.text("kernel_layout", "OIHW") or "OIHW").index("O") if "conv" in call.name else 0
    b = _shifted(w, _along(call, w_zero, "kernel_zero_point", w, axis, False))
    if call.name == "qnn.conv2d":
        return convolved(call, a, b)
    if call.name == "qnn.conv2d_transpose":
        return transposed(call, a, b)
    units = call.get("units")
    if call.name == "qnn.dense" and units is not None and int(units) != w.shape[0]:
        call.refuse(f"units is {units} for weights of shape {w.shape}", f"{w.shape[0]}")
    return product(a, b, transpose_b=True)


@converter("qnn.concatenate")
def concatenate(call: OpCall) -> Any:
    xs, scales, zeros = (call.tuple(i) for i in range(3))
    out_scale, out_zero = (call.number(v, "output") for v in call.args[3:])
    parts: list[Any] = []
    for x, scale, zero in zip(xs, scales, zeros, strict=True):
        s, z = float(call.number(scale, "scale")), int(call.number(zero, "zero_point"))
        same = s == out_scale and z == out_zero
        y = x if same else _requantized(_shifted(x, np.asarray(z)), np.asarray(s / out_scale), int(out_zero), x.dtype)
        parts.append(y)
    return meta.concatenate(parts, call.int("axis"))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "tanh": meta.tanh, "exp": meta.exp, "sqrt": meta.sqrt, "rsqrt": meta.rsqrt, "erf": meta.erf,
    "sigmoid": meta.sigmoid, "log": meta.log, "abs": meta.abs,
    "hardswish": lambda x: meta.multiply(x, meta.divide(meta.clip(meta.add(x, 3.0), 0.0, 6.0), 6.0)),
}  # fmt: skip


@converter(*(f"qnn.{name}" for name in _UNARY))
def unary(call: OpCall) -> Any:
    """A function of the represented value, quantised."""
    x, scale, zero, out_scale, out_zero = call.tensors(5)
    function = _UNARY[call.name.removeprefix("qnn.")]
    y = function(_dequantized(x, call.constant(scale, "scale"), call.constant(zero, "zero_point")))
    return _quantized(y, call.constant(out_scale, "scale"), call.constant(out_zero, "zero_point"), x.dtype)


_SHIFT, _UNIT, _RESULT_BITS = 8, 30, 7
"""The formats of the integer softmax: bits of the exponentials, of the reciprocal of their sum, and of the result."""


@converter("qnn.softmax")
def softmax(call: OpCall) -> Any:
    """In integers, by powers of two (Z. Li, Q. Gu, "I-ViT", 2022, algorithm 1)."""
    x, scale, zero, out_scale, out_zero = call.tensors(5)
    axis = call.int("axis", -1)
    one = max(math.floor(1.0 / float(call.number(scale, "scale")) + 0.5), 1)
    q = _shifted(x, call.constant(zero, "zero_point"))
    q = meta.subtract(q, meta.max(q, (axis,), True))
    # exp(q / one) is about 2 ** p, where p = 1.0111b * q / one.
    power = meta.subtract(meta.add(q, meta.right_shift(q, 1)), meta.right_shift(q, 4))
    whole = meta.trunc_divide(power, -one)
    rest = meta.add(power, meta.multiply(whole, one))
    mantissa = meta.add(meta.right_shift(rest, 1), one)
    shift = meta.clip(meta.subtract(_SHIFT, whole), 0, _SHIFT)
    powers = meta.where(meta.greater(whole, _SHIFT), 0, meta.left_shift(mantissa, shift))
    total = meta.cast(meta.sum(powers, (axis,), True), "int32")
    shares = meta.multiply(meta.trunc_divide(1 << _UNIT, total), powers)
    y = meta.right_shift(shares, _UNIT - _RESULT_BITS)
    ratio = np.asarray(0.5**_RESULT_BITS / float(call.number(out_scale, "output_scale")))
    return _requantized(y, ratio, int(call.number(out_zero, "output_zero_point")), x.dtype)


@converter("qnn.avg_pool2d")
def avg_pool2d(call: OpCall) -> Any:
    """Averages of integers at the scale of the result."""
    x, scale, zero, out_scale, out_zero = call.tensors(5)
    scales = [float(call.number(v, "scale")) for v in (scale, out_scale)]
    zeros = [int(call.number(v, "zero_point")) for v in (zero, out_zero)]
    wide = as_dtype(x, "int32")
    if (scales[0], zeros[0]) != (scales[1], zeros[1]):
        shifted = _shifted(x, np.asarray(zeros[0]))
        wide = _requantized(shifted, np.asarray(scales[0] / scales[1]), zeros[1], "int32")
    layout = call.text("layout", "NCHW") or "NCHW"
    y = averaged(call, convert_layout(call, wide, layout, "NCHW"))
    return _saturated(convert_layout(call, y, "NCHW", call.text("out_layout") or layout), x.dtype)


# --- simulated: in floats, with a number for the dtype that they represent ---

_CODES = {1: "int8", 2: "uint8", 3: "int32"}


@converter("qnn.simulated_quantize", "qnn.simulated_dequantize")
def simulated(call: OpCall) -> Any:
    """`quantize` or `dequantize` on floats. The second argument is the code of the integer dtype, 0 for none."""
    x, code, scale, zero = call.tensors(4)
    axis = call.int("axis", -1)
    factor, offset = (
        as_dtype(meta.reshape(v, () if v.size == 1 else _row(x, axis, v.size)), x.dtype) for v in (scale, zero)
    )
    if call.name == "qnn.simulated_dequantize":
        results = dict.fromkeys(_CODES, meta.multiply(meta.subtract(x, offset), factor))
    else:
        y = meta.add(rounded(meta.divide(x, factor)), offset)
        results = {n: meta.clip(y, *map(float, (np.iinfo(t).min, np.iinfo(t).max))) for n, t in _CODES.items()}
    folded = fold(code, call.builder)
    if folded is not None:
        return results.get(int(folded.item()), x)
    kind = meta.reshape(code, ())
    for number, result in results.items():
        x = meta.where(meta.equal(kind, number), result, x)
    return x


@converter("relay.op.annotation.simulated_quantize", "annotation.simulated_quantize")
def annotated(call: OpCall) -> Any:
    """Rounding to multiples of a scale between two bounds, as the passes of `relay.quantize` annotate it."""
    x, scale, low, high = call.tensors(4)
    for name in ("sign", "passthrough"):
        call.get(name)
    call.only("rounding", "round", "", None)
    if not call.int("kind"):
        return x
    bounded = meta.maximum(meta.minimum(meta.divide(x, scale), high), low)
    return meta.multiply(rounded(bounded), scale)


@converter("qnn.leaky_relu")
def leaky_relu(call: OpCall) -> Any:
    x, scale, zero, out_scale, out_zero = call.tensors(5)
    y = meta.leaky_relu(_dequantized(x, call.constant(scale, "scale"), call.constant(zero, "zero_point")),
                     call.float("alpha"))  # fmt: skip
    return _quantized(y, call.constant(out_scale, "scale"), call.constant(out_zero, "zero_point"), x.dtype)
