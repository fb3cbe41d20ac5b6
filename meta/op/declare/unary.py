"""Declarations of elementwise operators of one tensor."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.declare._standard import standard_unary, standard_unary_dx
from meta.op.registry import declare
from meta.schema import unary

# Arithmetic, and roundings. The result has the dtype of x.
standard_unary(
    "abs",
    "Absolute value, for complex numbers sqrt(re**2 + im**2).",
    result="part",
    accepts="number",
    operator="__abs__",
    aliases=("absolute",),
    complex="as_is",
)
standard_unary("ceil", "The least integer not below each element.", result="same", accepts="number")
standard_unary(
    "copy", "The same values in new memory.", result="same", operator="__pos__", aliases=("clone",), complex="analytic"
)
standard_unary("floor", "The greatest integer not above each element.", result="same", accepts="number")
standard_unary(
    "negative",
    "Minus each element.",
    result="same",
    accepts="number",
    operator="__neg__",
    aliases=("neg",),
    complex="analytic",
)
standard_unary("frac", "x - trunc(x), with the sign of x.", result="same", accepts="float")
standard_unary(
    "nan_to_num",
    "NaN and infinities replaced by numbers; integers are unchanged.",
    result="same",
    schema=unary.nan_to_num,
)
standard_unary("sign", "-1, 0 or 1 by the sign of each element; 0 for NaN.", result="same", accepts="number")
standard_unary(
    "one_minus_square", "1 - x * x, accurate where that is close to 0.", amp="never", method=False, complex="analytic"
)
standard_unary("square", "x * x.", result="same", accepts="number", complex="analytic")
standard_unary("trunc", "Each element without its fraction.", result="same", accepts="number")

# Elementary functions.
standard_unary(
    "acos", "Inverse cosine, in [0, pi]; NaN outside of [-1, 1].", amp="never", aliases=("arccos",), complex="analytic"
)
standard_unary(
    "acosh", "Inverse hyperbolic cosine; NaN below 1.", amp="never", aliases=("arccosh",), complex="analytic"
)
standard_unary(
    "asin",
    "Inverse sine, in [-pi/2, pi/2]; NaN outside of [-1, 1].",
    amp="never",
    aliases=("arcsin",),
    complex="analytic",
)
standard_unary("asinh", "Inverse hyperbolic sine.", amp="never", aliases=("arcsinh",), complex="analytic")
standard_unary("atan", "Inverse tangent, in [-pi/2, pi/2].", amp="never", aliases=("arctan",), complex="analytic")
standard_unary(
    "atanh",
    "Inverse hyperbolic tangent; NaN outside of [-1, 1].",
    amp="never",
    aliases=("arctanh",),
    complex="analytic",
)
standard_unary("cos", "Cosine of an angle in radians.", complex="analytic")
standard_unary("cosh", "Hyperbolic cosine.", amp="never", complex="analytic")
standard_unary("deg2rad", "Degrees as radians, x * pi / 180.", amp="never", aliases=("radians",))
standard_unary("erf", "The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.", amp="never")
standard_unary("erfc", "1 - erf(x), accurate where that is close to 0.", amp="never")
standard_unary("exp", "e raised to each element.", amp="never", complex="analytic")
standard_unary("exp2", "2 raised to each element.", amp="never", complex="analytic")
standard_unary("expm1", "exp(x) - 1, accurate near 0.", amp="never", complex="analytic")
standard_unary("log", "Natural logarithm; -inf at 0, NaN below.", amp="never", complex="analytic")
standard_unary("log10", "Logarithm to base 10; -inf at 0, NaN below.", amp="never", complex="analytic")
standard_unary("log1p", "log(1 + x), accurate near 0.", amp="never", complex="analytic")
standard_unary("log2", "Logarithm to base 2; -inf at 0, NaN below.", amp="never", complex="analytic")
standard_unary(
    "logit", "log(x / (1 - x)), the inverse of sigmoid; NaN outside of [0, 1].", schema=unary.logit, amp="never"
)
standard_unary("rad2deg", "Radians as degrees, x * 180 / pi.", amp="never", aliases=("degrees",))
standard_unary("reciprocal", "1 / x.", amp="never", complex="analytic")
standard_unary("rsqrt", "1 / sqrt(x); inf at 0, NaN below.", amp="never", complex="analytic")
standard_unary("sin", "Sine of an angle in radians.", complex="analytic")
standard_unary("sinc", "sin(pi x) / (pi x); 1 at 0.", amp="never")
standard_unary("sinh", "Hyperbolic sine.", amp="never", complex="analytic")
standard_unary("sqrt", "Square root; NaN below 0.", complex="analytic")
standard_unary("tan", "Tangent of an angle in radians.", amp="never", complex="analytic")
standard_unary("tanh", "Hyperbolic tangent.", complex="analytic")

# Activations.
standard_unary(
    "celu",
    "x above 0, alpha * (exp(x / alpha) - 1) below (J. T. Barron, 2017).",
    result="same",
    accepts="float",
    schema=unary.elu,
)
standard_unary(
    "elu",
    "x above 0, alpha * (exp(x) - 1) below (D.-A. Clevert et al., 2015).",
    result="same",
    accepts="float",
    schema=unary.elu,
)
standard_unary(
    "gelu",
    'x * Phi(x), Phi the normal distribution function; with approximate="tanh", '
    "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) (D. Hendrycks and K. Gimpel, 2016).",
    result="same",
    accepts="float",
    schema=unary.gelu,
)
standard_unary("leaky_relu", "x above 0, alpha * x below.", result="same", accepts="float", schema=unary.leaky_relu)
standard_unary("relu", "max(x, 0).", result="same", accepts="number")
standard_unary("sigmoid", "1 / (1 + exp(-x)).")
standard_unary("silu", "x * sigmoid(x), also called swish.", result="same", accepts="float")
standard_unary(
    "softplus",
    "log(1 + exp(beta * x)) / beta, without overflow.",
    result="same",
    accepts="float",
    schema=unary.softplus,
    amp="never",
)


@declare("threshold", schema=unary.threshold, pattern="elemwise", method=True)
def threshold(x: TensorType, threshold: float, value: float) -> TensorType:
    """x above `threshold`, `value` elsewhere; with integers, both are truncated."""
    rules.require_number("x", x)
    for number in (threshold, value):
        rules.require_held(number, x.dtype)
    return x


# Predicates.
standard_unary("isfinite", "Whether each element is neither infinite nor NaN.", result="bool", complex="analytic")
standard_unary("isinf", "Whether each element is an infinity.", result="bool", complex="analytic")
standard_unary("isnan", "Whether each element is NaN.", result="bool", complex="analytic")
standard_unary("isneginf", "Whether each element is minus infinity.", result="bool")
standard_unary("isposinf", "Whether each element is plus infinity.", result="bool")
standard_unary("signbit", "Whether the sign bit is set: true for negative numbers and -0.0.", result="bool")
standard_unary("logical_not", "Whether each element is zero (or false).", result="bool", complex="as_is")

standard_unary(
    "bitwise_not",
    "Each bit of an integer inverted; the negation of a boolean.",
    result="same",
    accepts="discrete",
    operator="__invert__",
    aliases=("invert",),
)


@declare("frexp", schema=unary.unary, pattern="injective", method=True, outputs=("mantissa", "exponent"))
def frexp(x: TensorType) -> TupleType:
    """x as mantissa * 2**exponent: a mantissa of the dtype of x with 1/2 <= |mantissa| < 1, and an int32 exponent. 0,
    infinities and NaN are their own mantissa, with exponent 0."""
    rules.require_float("x", x)
    return TupleType((x, x.with_dtype("int32")))


@declare("round", schema=unary.round, pattern="elemwise", method=True)
def round(x: TensorType, decimals: int) -> TensorType:
    """The nearest integer, or the nearest multiple of 10**-`decimals`; ties round to even. The result has the dtype of
    x."""
    rules.require_number("x", x)
    rules.require(decimals == 0 or dtypes.is_float(x.dtype), f"decimals is {decimals}, x is {x.dtype}",
                  "0 for integers, or a floating dtype")  # fmt: skip
    return x


@declare("clip", schema=unary.clip, pattern="elemwise", method=True, aliases=("clamp",))
def clip(x: TensorType, min: float | None, max: float | None) -> TensorType:
    """min(max(x, `min`), `max`); NaN stays NaN. The result has the dtype of x, or float32 for integers with a float
    bound."""
    rules.require(min is not None or max is not None, "both bounds are None", "at least one bound")
    rules.require_number("x", x)
    return x.with_dtype(rules.held_dtype(x, *(bound for bound in (min, max) if bound is not None)))


@declare("clip_dx", schema=unary.clip_dx, pattern="elemwise")
def clip_dx(x: TensorType, dy: TensorType, *_: object) -> TensorType:
    """Gradient of clip: dy where x lies within the bounds or equals one, else 0, also where x is NaN."""
    rules.require_float("dy", dy)
    rules.require_same_shape(x=x, dy=dy)
    rules.require_same_dtype(x=x, dy=dy)
    return dy


standard_unary_dx("elu_dx", needs="x", schema=unary.elu_dx)
standard_unary_dx("softplus_dx", needs="x", amp="never", doc="Gradient of log(1 + exp(x)): dy * sigmoid(x).")
standard_unary_dx("erf_dx", needs="x", amp="never")
standard_unary_dx("gelu_dx", needs="x", schema=unary.gelu_dx)
standard_unary_dx("leaky_relu_dx", needs="x", schema=unary.leaky_relu_dx)
standard_unary_dx("reciprocal_dx", needs="y", amp="never", complex="analytic")
standard_unary_dx("relu_dx", needs="y")
standard_unary_dx("rsqrt_dx", needs="y", amp="never", complex="analytic")
standard_unary_dx("sigmoid_dx", needs="y")
standard_unary_dx("silu_dx", needs="x")
standard_unary_dx("sqrt_dx", needs="y", complex="analytic")
standard_unary_dx("tanh_dx", needs="y", complex="analytic")
standard_unary_dx("threshold_dx", needs="x", schema=unary.threshold_dx)
