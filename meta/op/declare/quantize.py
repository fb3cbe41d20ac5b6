"""Declarations of quantised numbers."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.errors import value_text
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import quantize


def _require_step(
    x: TensorType, scale: rules.ScalarOrType, zero_point: rules.ScalarOrType, low: int, high: int
) -> None:
    """A scale above 0 and a zero point from low to high, as far as they are numbers, that broadcast to x."""
    for name, value in (("scale", scale), ("zero_point", zero_point)):
        if isinstance(value, TensorType):
            rules.same_device(x, value)
            problem = f"'{name}' has shape {rules.show(value.shape)}, 'x' {rules.show(x.shape)}"
            shape = rules.broadcast_shapes(x.shape, value.shape)
            rules.require(rules.same_shape(shape, x.shape), problem, "a shape that broadcasts to x")
            rules.require(value.dtype != "bool", f"'{name}' has dtype bool", "numbers")
    if isinstance(scale, TensorType):
        rules.require_float("scale", scale)
    else:
        least, most = dtypes.smallest_normal("float32"), dtypes.largest("float32")
        is_positive = isinstance(scale, (int, float)) and least <= scale <= most
        rules.require(is_positive, f"scale is {value_text(scale)}", f"a number above 0, from {least:.3g} to {most:.3g}")
    if isinstance(zero_point, (int, float)):
        is_inside = low <= zero_point <= high and float(zero_point).is_integer()
        rules.require(is_inside, f"zero_point is {value_text(zero_point)}", f"an integer from {low} to {high}")


def _range(dtype: str) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    is_narrow = dtypes.is_int(dtype) and dtypes.itemsize(dtype) <= 4
    rules.require(is_narrow, f"the integers are {dtype}", "int8, uint8, int16, uint16, int32 or uint32")
    return dtypes.int_range(dtype)


@declare("quantize_linear", schema=quantize.quantize_linear, pattern="broadcast", amp="keep")
def quantize_linear(x: TensorType, scale: rules.ScalarOrType, zero_point: rules.ScalarOrType, dtype: str) -> TensorType:
    """The integers nearest to x / scale, halves to even ones, plus zero_point, limited to the range of dtype."""
    rules.require_float("x", x)
    _require_step(x, scale, zero_point, *_range(dtype))
    return x.with_dtype(dtype)


@declare("dequantize_linear", schema=quantize.dequantize_linear, pattern="broadcast", amp="keep")
def dequantize_linear(x: TensorType, scale: rules.ScalarOrType, zero_point: rules.ScalarOrType) -> TensorType:
    """(x - zero_point) * scale, in the dtype of scale, float32 for a number.

    zero_point may be any integer of 32 bits."""
    _range(x.dtype)
    _require_step(x, scale, zero_point, *_range("int32"))
    return x.with_dtype(scale.dtype if isinstance(scale, TensorType) else "float32")


@declare("fake_quantize", schema=quantize.fake_quantize, pattern="broadcast", amp="keep")
def fake_quantize(
    x: TensorType, scale: rules.ScalarOrType, zero_point: rules.ScalarOrType, low: int, high: int
) -> TensorType:
    """x rounded to the values of integers from low to high: (q - zero_point) * scale with the integer q nearest to
    x / scale + zero_point.

    The gradient of x is dy where q needs no limit, and 0 elsewhere; the gradient of scale follows from the rounding
    error (S. Esser et al., "Learned Step Size Quantization", 2020)."""
    rules.require_float("x", x)
    for bound in (low, high):
        rules.require_held(bound, "int32")
    rules.require(low < high, f"low is {low}, high is {high}", "low < high")
    _require_step(x, scale, zero_point, low, high)
    return x
