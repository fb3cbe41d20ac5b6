"""Schemas of quantised numbers: an integer q represents (q - zero point) * scale.

Scales and zero points are numbers, or tensors that broadcast to x: of shape () for all elements, or (channels, 1, 1, 1)
for each output channel of a convolution's weights. Symmetric steps, as of weights, have the zero point 0; asymmetric
steps use the whole range of the integers for inputs that are mostly positive.
"""

from meta.schema._dsl import Arg, DType, Int, Scalar, Schema, Tensor

_scale = Arg(
    "scale", Scalar, doc="The value of one step, above 0: a number, or a floating tensor that broadcasts to x."
)
_zero_point = Arg(
    "zero_point",
    Scalar,
    0,
    doc="The integer that represents 0.0: a number in the range of the integers, or a tensor that broadcasts to x.",
)

quantize_linear = Schema(
    "quantize_linear",
    Arg("x", Tensor, doc="Values, floating."),
    _scale,
    _zero_point,
    Arg("dtype", DType, "int8", doc="Dtype of the result: integers of 8, 16 or 32 bits."),
)
dequantize_linear = Schema(
    "dequantize_linear",
    Arg("x", Tensor, doc="Integers of 8, 16 or 32 bits."),
    _scale,
    _zero_point,
)
fake_quantize = Schema(
    "fake_quantize",
    Arg("x", Tensor, doc="Values, floating."),
    _scale,
    _zero_point,
    Arg("low", Int, -128, doc="The least integer."),
    Arg("high", Int, 127, doc="The largest integer."),
)
