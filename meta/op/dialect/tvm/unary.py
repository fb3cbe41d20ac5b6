"""TE computes of elementwise operators of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of, nearbyint
from meta.backend.tvm.numbers import Number
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import (
    bits_of,
    const,
    element,
    is_float,
    is_nan,
    is_negative,
    let,
    libm,
    select,
)
from meta.op.dialect.tvm import Registrar

_registrar = Registrar(__file__)
compute, elementwise = _registrar.compute, _registrar.elementwise


def rounding(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """A rounding `function` that returns integers unchanged."""
    return lambda x: function(x) if is_float(x) else x


def sign(x: Expr) -> Expr:
    one, zero = const(x, 1), const(x, 0)
    negative = zero if dtype_of(x).startswith("u") else select(x < zero, -one, zero)
    return select(x > zero, one, negative)


def gelu(x: Expr, approximate: str) -> Expr:
    return te_math.gelu(x) if approximate == "none" else te_math.gelu_tanh(x)


def round_to(x: Expr, decimals: int) -> Expr:
    """The nearest multiple of 10**-decimals; infinities stay, and so do numbers whose product with 10**decimals
    overflows, because they have no further decimals."""
    if decimals == 0 or not is_float(x):
        return rounding(nearbyint)(x)
    number = float(f"1e{abs(decimals)}")
    power, infinity = const(x, number), const(x, math.inf)
    if decimals > 0:
        return let(x * power, lambda y: select(tirx.abs(y) < infinity, nearbyint(y) / power, x))
    # 0 is the nearest multiple of a power beyond the dtype.
    nearest = x * const(x, 0) if number > dtypes.largest(dtype_of(x)) else nearbyint(x / power) * power
    return select(tirx.abs(x) < infinity, nearest, x)


def signbit(x: Expr) -> Expr:
    if not is_float(x):
        return tirx.const(False, "bool") if dtype_of(x)[0] in "ub" else x < const(x, 0)
    return is_negative(x)


def clip(x: Expr, low: float | None, high: float | None) -> Expr:
    """min(max(x, low), high). NaN stays NaN: comparisons with it are false. A bound that is NaN makes NaN."""
    if low is not None:
        x = _bounded(x, low, lambda x, bound: x < bound)
    if high is not None:
        x = _bounded(x, high, lambda x, bound: x > bound)
    return x


def _bounded(x: Expr, limit: float | Number, is_beyond: Callable[[Expr, Expr], Expr]) -> Expr:
    bound = const(x, limit)
    if not isinstance(limit, Number):
        return bound if math.isnan(limit) else select(is_beyond(x, bound), bound, x)
    limited = select(is_beyond(x, bound), bound, x)
    # Two selections: LLVM takes seconds to compile several conditions with `or` in one expression.
    return select(is_nan(bound), bound, limited) if is_float(bound) else limited


elementwise({
    "abs": lambda x: x if dtype_of(x).startswith("u") else tirx.abs(x),
    "acos": libm("acos"),
    "acosh": libm("acosh"),
    "asin": libm("asin"),
    "asinh": libm("asinh"),
    "atan": libm("atan"),
    "atanh": libm("atanh"),
    "bitwise_not": lambda x: tirx.Not(x) if dtype_of(x) == "bool" else tirx.bitwise_not(x),
    "ceil": rounding(tirx.ceil),
    "copy": lambda x: x,
    "cos": libm("cos"),
    "cosh": libm("cosh"),
    "erf": te_math.erf,
    "erfc": libm("erfc"),
    "exp": te_math.exp,
    "exp2": libm("exp2"),
    "expm1": te_math.expm1,
    "floor": rounding(tirx.floor),
    "gelu": gelu,
    "isfinite": lambda x: tirx.abs(x) < const(x, math.inf) if is_float(x) else tirx.const(True, "bool"),
    "isinf": lambda x: tirx.EQ(tirx.abs(x), const(x, math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "isnan": is_nan,
    "isneginf": lambda x: tirx.EQ(x, const(x, -math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "isposinf": lambda x: tirx.EQ(x, const(x, math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "log": te_math.log,
    "log10": libm("log10"),
    "log1p": te_math.log1p,
    "log2": libm("log2"),
    "logical_not": lambda x: tirx.Not(x) if dtype_of(x) == "bool" else tirx.EQ(x, const(x, 0)),
    "negative": lambda x: -x if is_float(x) else const(x, 0) - x,
    "reciprocal": lambda x: const(x, 1) / x,
    "relu": lambda x: select(x < const(x, 0), const(x, 0), x),
    "round": round_to,
    "sigmoid": te_math.sigmoid,
    "sign": sign,
    "signbit": signbit,
    "sin": libm("sin"),
    "sinh": libm("sinh"),
    "sqrt": tirx.sqrt,
    "tan": libm("tan"),
    "tanh": te_math.tanh,
    "trunc": rounding(tirx.trunc),
})  # fmt: skip

elementwise({"clip": clip}, bounds=True)


_FRACTION_BITS = {"float32": 23, "float64": 52}


@compute("frexp")
def frexp(x: Tensor) -> Any:
    wide = dtypes.accumulation_dtype(str(x.dtype))
    digits = _FRACTION_BITS[wide]
    bias, exponents = (126, 0xFF) if wide == "float32" else (1022, 0x7FF)

    def normal(value: Expr) -> tuple[Expr, Expr, Expr]:
        """A denormal times 2**digits, that shift of the exponent, and whether the value has an exponent at all."""
        size = tirx.abs(value)
        is_small = size < const(value, 2.0 ** (2 - 128 if wide == "float32" else 2 - 1024))
        scaled = select(is_small, value * const(value, 2.0**digits), value)
        shift = select(is_small, tirx.const(digits, "int32"), tirx.const(0, "int32"))
        return scaled, shift, tirx.And(size > const(value, 0), size < const(value, math.inf))

    def mantissa_of(value: Expr) -> Expr:
        scaled, _, has_exponent = normal(value)

        def replaced(bits: Expr) -> Expr:
            mantissa = bits & tirx.bitwise_not(const(bits, exponents << digits))
            return tirx.reinterpret(wide, mantissa | const(bits, bias << digits))

        return select(has_exponent, let(bits_of(scaled), replaced), value)

    def exponent_of(value: Expr) -> Expr:
        scaled, shift, has_exponent = normal(value)
        bits = bits_of(scaled)
        exponent = ((bits >> const(bits, digits)) & const(bits, exponents)).astype("int32")
        return select(has_exponent, exponent - tirx.const(bias, "int32") - shift, tirx.const(0, "int32"))

    mantissa = te.compute(x.shape, lambda *i: let(element(x, i, wide), mantissa_of).astype(x.dtype), "mantissa")
    return mantissa, te.compute(x.shape, lambda *i: let(element(x, i, wide), exponent_of), "exponent")
