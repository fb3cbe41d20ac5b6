"""Declarations of elementwise operators of two operands, and of `where`."""

# The functions of the operator module are untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import operator
from typing import Any

from meta import dtype as dtypes
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import standard_binary, standard_broadcast
from meta.op.registry import declare
from meta.schema import binary


def _power(a: Any, b: Any) -> Any:
    """a ** b of Python numbers, NaN where it is not real. Raises OverflowError beyond 2**1024, as floats do."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b * math.log2(abs(a)) > 1024:
        raise OverflowError("the result is too large")
    out = a**b
    return math.nan if isinstance(out, complex) and not isinstance(a, complex) and not isinstance(b, complex) else out


def _left_shift(a: Any, b: Any) -> Any:
    """a << b of Python numbers. Raises OverflowError beyond 2**1024, as floats do."""
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b > 1024:
        raise OverflowError("the result is too large")
    return a << b


# Arithmetic.
standard_binary("add", "x1 + x2.", scalar=operator.add, operator="__add__", complex="analytic")
standard_binary(
    "atan2",
    "The angle in radians of the point (x2, x1), in [-pi, pi].",
    result="float",
    scalar=math.atan2,
    amp="never",
    aliases=("arctan2",),
)
standard_binary("copysign", "|x1| with the sign of x2, also for -0.0.", result="float", scalar=math.copysign)
standard_binary(
    "divide",
    "x1 / x2.",
    result="float",
    scalar=operator.truediv,
    operator="__truediv__",
    aliases=("div", "true_divide"),
    complex="analytic",
)
standard_binary("fmax", "The larger operand; the other one where one is NaN.")
standard_binary("fmin", "The smaller operand; the other one where one is NaN.")
standard_binary(
    "floor_divide",
    "The greatest integer not above x1 / x2. Integers divided by 0 give 0.",
    accepts="number",
    scalar=operator.floordiv,
    operator="__floordiv__",
)
standard_binary("gcd", "The greatest common divisor, at least 0; |x1| where x2 is 0.", accepts="int", scalar=math.gcd)
standard_binary(
    "heaviside",
    "0 where x1 is negative or NaN, 1 where it is positive, x2 where it is 0. The gradient of x1 is 0, "
    "the gradient of x2 is dy where x1 is 0; torch has none.",
)
standard_binary("hypot", "sqrt(x1**2 + x2**2), without overflow.", result="float", scalar=math.hypot, amp="never")
standard_binary("lcm", "The least common multiple, at least 0; 0 where one is 0.", accepts="int", scalar=math.lcm)
standard_binary("logaddexp", "log(exp(x1) + exp(x2)), without overflow.", result="float", amp="never")
standard_binary("logaddexp2", "log2(2**x1 + 2**x2), without overflow.", result="float", amp="never")
standard_binary("maximum", "The larger operand; NaN where either is.", scalar=max)
standard_binary("minimum", "The smaller operand; NaN where either is.", scalar=min)
standard_binary(
    "mod",
    "x1 - x2 * floor(x1 / x2), with the sign of x2. Integers modulo 0 give 0.",
    accepts="number",
    scalar=operator.mod,
    operator="__mod__",
    aliases=("remainder",),
)
standard_binary("multiply", "x1 * x2.", scalar=operator.mul, operator="__mul__", aliases=("mul",), complex="analytic")
standard_binary("nextafter", "The number of the dtype next to x1 in the direction of x2.", accepts="float", amp="keep")
standard_binary(
    "trunc_divide", "x1 / x2 rounded towards zero. Integers divided by 0 give 0.", accepts="number", method=False
)
standard_binary(
    "trunc_mod",
    "x1 - x2 * trunc(x1 / x2), with the sign of x1. Integers modulo 0 give 0.",
    accepts="number",
    method=False,
    aliases=("fmod",),
)
standard_binary(
    "power",
    "x1 ** x2; x ** 0 is 1; NaN where x1 is negative and finite and x2 is not an integer; (-inf) ** 0.5 is inf and "
    "(-0.0) ** 0.5 is 0.0, as in C and by torch with a tensor as exponent (with the number 0.5, torch gives NaN and "
    "-0.0). Integers to negative powers are truncated: 1 and -1 give 1 or -1, all others 0.",
    accepts="number",
    scalar=_power,
    operator="__pow__",
    amp="never",
    aliases=("pow",),
    complex="analytic",
)
standard_binary(
    "subtract",
    "x1 - x2.",
    accepts="number",
    scalar=operator.sub,
    operator="__sub__",
    aliases=("sub",),
    complex="analytic",
)
standard_binary("xlog1py", "x1 * log(1 + x2); 0 where x1 is 0, unless x2 is NaN.", result="float", amp="never")
standard_binary("xlogy", "x1 * log(x2); 0 where x1 is 0, unless x2 is NaN.", result="float", amp="never")

# Sums of a tensor and a product, a quotient or a difference.
standard_broadcast("addcdiv", "x + value * x1 / x2.", schema=binary.addcdiv, accepts="inexact", complex="analytic")
standard_broadcast(
    "lerp",
    "x1 + weight * (x2 - x1), computed from the nearer end.",
    schema=binary.lerp,
    result="float",
)

# Comparisons. Operands are compared in their common dtype.
standard_binary(
    "equal",
    "x1 == x2; false for NaN.",
    result="bool",
    amp="keep",
    scalar=operator.eq,
    operator="__eq__",
    aliases=("eq",),
    complex="analytic",
)
standard_binary(
    "greater",
    "x1 > x2; false for NaN.",
    result="bool",
    amp="keep",
    scalar=operator.gt,
    operator="__gt__",
    aliases=("gt",),
)
standard_binary(
    "greater_equal",
    "x1 >= x2; false for NaN.",
    result="bool",
    amp="keep",
    scalar=operator.ge,
    operator="__ge__",
    aliases=("ge",),
)
standard_binary(
    "less", "x1 < x2; false for NaN.", result="bool", amp="keep", scalar=operator.lt, operator="__lt__", aliases=("lt",)
)
standard_binary(
    "less_equal",
    "x1 <= x2; false for NaN.",
    result="bool",
    amp="keep",
    scalar=operator.le,
    operator="__le__",
    aliases=("le",),
)
standard_binary(
    "not_equal",
    "x1 != x2; true for NaN.",
    result="bool",
    amp="keep",
    scalar=operator.ne,
    operator="__ne__",
    aliases=("ne",),
    complex="analytic",
)


def _and(a: float, b: float) -> bool:
    return bool(a) and bool(b)


def _or(a: float, b: float) -> bool:
    return bool(a) or bool(b)


def _xor(a: float, b: float) -> bool:
    return bool(a) != bool(b)


# Logic on truth values (anything but 0 is true), and on bits.
standard_binary("logical_and", "Whether both are true.", result="bool", amp="keep", scalar=_and, complex="as_is")
standard_binary("logical_or", "Whether at least one is true.", result="bool", amp="keep", scalar=_or, complex="as_is")
standard_binary("logical_xor", "Whether exactly one is true.", result="bool", amp="keep", scalar=_xor, complex="as_is")
standard_binary(
    "bitwise_and",
    "Bitwise and of integers or booleans.",
    accepts="discrete",
    scalar=operator.and_,
    operator="__and__",
)
standard_binary(
    "bitwise_or",
    "Bitwise or of integers or booleans.",
    accepts="discrete",
    scalar=operator.or_,
    operator="__or__",
)
standard_binary(
    "bitwise_xor",
    "Bitwise exclusive or of integers or booleans.",
    accepts="discrete",
    scalar=operator.xor,
    operator="__xor__",
)
standard_binary(
    "left_shift",
    "The bits of x1 shifted up by x2, filled with zeros; 0 where x2 is negative or at least the width.",
    accepts="int",
    scalar=_left_shift,
    operator="__lshift__",
    aliases=("bitwise_left_shift",),
)
standard_binary(
    "right_shift",
    "The bits of x1 shifted down by x2, filled with the sign bit; a negative or too large x2 "
    "counts as the width less one.",
    accepts="int",
    scalar=operator.rshift,
    operator="__rshift__",
    aliases=("bitwise_right_shift",),
)


def _extremum_dx(x1: rules.ScalarOrType, x2: rules.ScalarOrType, dy: TensorType) -> TensorType:
    rules.require_float("dy", dy)
    result = rules.broadcast_type(x1, x2)
    rules.require_same_shape(y=result, dy=dy)
    return dy


@declare("maximum_dx", schema=binary.extremum_dx, pattern="broadcast")
def maximum_dx(x1: rules.ScalarOrType, x2: rules.ScalarOrType, dy: TensorType) -> TensorType:
    """Gradient of maximum for its first operand, not summed down to its shape: dy where x1 is larger, half of it where
    both are equal, else 0."""
    return _extremum_dx(x1, x2, dy)


@declare("minimum_dx", schema=binary.extremum_dx, pattern="broadcast")
def minimum_dx(x1: rules.ScalarOrType, x2: rules.ScalarOrType, dy: TensorType) -> TensorType:
    """Gradient of minimum for its first operand, not summed down to its shape: dy where x1 is smaller, half of it where
    both are equal, else 0."""
    return _extremum_dx(x1, x2, dy)


@declare("atan2_dx", schema=binary.extremum_dx, pattern="broadcast", amp="never")
def atan2_dx(x1: rules.ScalarOrType, x2: rules.ScalarOrType, dy: TensorType) -> TensorType:
    """Gradient of atan2 for its first operand, not summed down to its shape: dy * x2 / (x1**2 + x2**2); 0 at the
    origin, where the angle has no gradient."""
    return _extremum_dx(x1, x2, dy)


@declare("hypot_dx", schema=binary.hypot_dx, pattern="broadcast", amp="never")
def hypot_dx(x1: rules.ScalarOrType, x2: rules.ScalarOrType, y: TensorType, dy: TensorType) -> TensorType:
    """Gradient of hypot for its first operand, not summed down to its shape: dy * x1 / y."""
    rules.require_same_dtype(y=y, dy=dy)
    return _extremum_dx(x1, x2, dy)


@declare("addcmul", schema=binary.addcmul, pattern="broadcast", method=True, complex="analytic")
def addcmul(x: TensorType, x1: rules.ScalarOrType, x2: rules.ScalarOrType, value: float) -> TensorType:
    """x + value * x1 * x2."""
    out = rules.broadcast_type(x, x1, x2)
    rules.require_number("x", out)
    is_whole = not isinstance(value, float) or value.is_integer() or dtypes.is_inexact(out.dtype)
    rules.require(is_whole, f"value is {value}, the operands are {out.dtype}", "an integer", "cast one to a float")
    rules.require_held(value, out.dtype)
    return out


@declare("where", schema=binary.where, pattern="broadcast", complex="analytic")
def where(condition: TensorType, x: rules.ScalarOrType, y: rules.ScalarOrType) -> TensorType:
    """x where the condition is true, y elsewhere. The dtypes of x and y promote."""
    rules.require(
        condition.dtype == "bool",
        f"'condition' has dtype {condition.dtype}",
        "bool",
        "compare it: condition != 0",
    )
    rules.same_device(*[t for t in (condition, x, y) if isinstance(t, TensorType)])
    shapes = [t.shape for t in (condition, x, y) if isinstance(t, TensorType)]
    shape = rules.broadcast_shapes(*shapes)
    return condition.with_shape(shape).with_dtype(rules.held_dtype(x, y))
