"""TE computes of elementwise operators of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.numbers import Number
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import (
    bits_of,
    clamp,
    const,
    element,
    is_float,
    is_nan,
    is_negative,
    let,
    libm,
    select,
    softplus,
)
from meta.op.dialect.tvm import Registrar

_registrar = Registrar(__file__)
compute, elementwise = _registrar.compute, _registrar.elementwise


_TWO_OVER_ROOT_PI: Final = 2 / math.sqrt(math.pi)
_ONE_OVER_ROOT_TWO_PI: Final = 1 / math.sqrt(2 * math.pi)
_GELU_SCALE: Final = math.sqrt(2 / math.pi)


def rounding(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """A rounding `function` that returns integers unchanged."""
    return lambda x: function(x) if is_float(x) else x


def sign(x: Expr) -> Expr:
    one, zero = const(x, 1), const(x, 0)
    negative = zero if dtype_of(x).startswith("u") else select(x < zero, -one, zero)
    return select(x > zero, one, negative)


def sigmoid_dx(y: Expr, dy: Expr) -> Expr:
    return dy * y * (const(y, 1) - y)


def silu_dx(x: Expr, dy: Expr) -> Expr:
    one = const(x, 1)
    return let(te_math.sigmoid(x), lambda s: dy * s * (one + x * (one - s)))


def elu(x: Expr, alpha: float) -> Expr:
    return select(x > const(x, 0), x, const(x, alpha) * te_math.expm1(x))


def elu_dx(x: Expr, dy: Expr, alpha: float) -> Expr:
    return select(x > const(x, 0), dy, dy * const(x, alpha) * te_math.exp(x))


def gelu(x: Expr, approximate: str) -> Expr:
    return te_math.gelu(x) if approximate == "none" else te_math.gelu_tanh(x)


def gelu_dx(x: Expr, dy: Expr, approximate: str) -> Expr:
    gelu_cubic = 0.044715
    half, one = const(x, 0.5), const(x, 1)
    if approximate == "none":
        distribution = half * (one + te_math.erf(x * const(x, math.sqrt(0.5))))
        density = const(x, _ONE_OVER_ROOT_TWO_PI) * te_math.exp(-half * x * x)
        return dy * (distribution + x * density)
    scale, cubic, two, three = const(x, _GELU_SCALE), const(x, gelu_cubic), const(x, 2), const(x, 3)

    def from_both(z: Expr, s: Expr) -> Expr:
        # x sigmoid(2 u) for u = scale * (x + cubic * x**3): 1 + tanh(u) would cancel below 0.
        slope = scale * (one + three * cubic * z * z)
        return dy * s * (one + two * z * slope * (one - s))

    # Farther, the sigmoid is 0 or 1 in every dtype, and the powers of x overflow.
    return let(
        clamp(x, -30.0, 30.0),
        lambda z: let(te_math.sigmoid(two * scale * (z + cubic * z * z * z)), lambda s: from_both(z, s)),
    )


def logit(x: Expr, eps: float | None) -> Expr:
    one = const(x, 1)
    limited = x if eps is None else clip(x, eps, 1 - eps)
    return let(limited, lambda z: te_math.log(z / (one - z)))


def round_to(x: Expr, decimals: int) -> Expr:
    """The nearest multiple of 10**-decimals; infinities stay, and so do numbers whose product with 10**decimals
    overflows, because they have no further decimals."""
    if decimals == 0 or not is_float(x):
        return rounding(tirx.nearbyint)(x)
    number = float(f"1e{abs(decimals)}")
    power, infinity = const(x, number), const(x, math.inf)
    if decimals > 0:
        return let(x * power, lambda y: select(tirx.abs(y) < infinity, tirx.nearbyint(y) / power, x))
    # 0 is the nearest multiple of a power beyond the dtype.
    nearest = x * const(x, 0) if number > dtypes.largest(dtype_of(x)) else tirx.nearbyint(x / power) * power
    return select(tirx.abs(x) < infinity, nearest, x)


def signbit(x: Expr) -> Expr:
    if not is_float(x):
        return tirx.const(False, "bool") if dtype_of(x)[0] in "ub" else x < const(x, 0)
    return is_negative(x)


def sinc(x: Expr) -> Expr:
    def quotient(angle: Expr) -> Expr:
        is_zero = tirx.EQ(angle, const(x, 0))
        return select(is_zero, const(x, 1), sign * libm("sin")(turn) / select(is_zero, const(x, 1), angle))

    # By the distance from an integer: the product with pi loses the digits of large x.
    nearest = tirx.nearbyint(x)
    odd = nearest - tirx.nearbyint(nearest * const(x, 0.5)) * const(x, 2)
    sign = const(x, 1) - const(x, 2) * odd * odd
    turn = (x - nearest) * const(x, math.pi)
    return let(x * const(x, math.pi), quotient)


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


def clip_dx(x: Expr, dy: Expr, low: float | None, high: float | None) -> Expr:
    """dy within the bounds; 0 at NaN, for comparisons with it are false."""
    zero = const(dy, 0)
    if low is not None:
        dy = select(x >= const(x, low), dy, zero)
    return dy if high is None else select(x <= const(x, high), dy, zero)


def softplus_above(x: Expr, beta: float, threshold: float | None) -> Expr:
    smooth = softplus(x, beta)
    return smooth if threshold is None else select(x * const(x, beta) > const(x, threshold), x, smooth)


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
    "celu": lambda x, alpha: select(x > const(x, 0), x, const(x, alpha) * te_math.expm1(x / const(x, alpha))),
    "copy": lambda x: x,
    "cos": libm("cos"),
    "cosh": libm("cosh"),
    "deg2rad": lambda x: x * const(x, math.pi / 180),
    "elu": elu,
    "elu_dx": elu_dx,
    "erf": te_math.erf,
    "erf_dx": lambda x, dy: dy * const(x, _TWO_OVER_ROOT_PI) * te_math.exp(-x * x),
    "erfc": libm("erfc"),
    "exp": te_math.exp,
    "exp2": libm("exp2"),
    "expm1": te_math.expm1,
    "floor": rounding(tirx.floor),
    "frac": lambda x: x - tirx.trunc(x),
    "gelu": gelu,
    "gelu_dx": gelu_dx,
    "isfinite": lambda x: tirx.abs(x) < const(x, math.inf) if is_float(x) else tirx.const(True, "bool"),
    "isinf": lambda x: tirx.EQ(tirx.abs(x), const(x, math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "isnan": is_nan,
    "isneginf": lambda x: tirx.EQ(x, const(x, -math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "isposinf": lambda x: tirx.EQ(x, const(x, math.inf)) if is_float(x) else tirx.const(False, "bool"),
    "leaky_relu": lambda x, alpha: select(x > const(x, 0), x, x * const(x, alpha)),
    "leaky_relu_dx": lambda x, dy, alpha: select(x > const(x, 0), dy, dy * const(x, alpha)),
    "log": te_math.log,
    "log10": libm("log10"),
    "log1p": te_math.log1p,
    "log2": libm("log2"),
    "logical_not": lambda x: tirx.Not(x) if dtype_of(x) == "bool" else tirx.EQ(x, const(x, 0)),
    "logit": logit,
    "negative": lambda x: -x if is_float(x) else const(x, 0) - x,
    "one_minus_square": lambda x: (const(x, 1) - x) * (const(x, 1) + x),
    "rad2deg": lambda x: x * const(x, 180 / math.pi),
    "reciprocal": lambda x: const(x, 1) / x,
    "reciprocal_dx": lambda y, dy: -dy * y * y,
    "relu": lambda x: select(x < const(x, 0), const(x, 0), x),
    "relu_dx": lambda y, dy: select(y <= const(y, 0), const(dy, 0), dy),
    "round": round_to,
    "rsqrt": lambda x: const(x, 1) / tirx.sqrt(x),
    "rsqrt_dx": lambda y, dy: const(y, -0.5) * dy * y * y * y,
    "sigmoid": te_math.sigmoid,
    "sigmoid_dx": sigmoid_dx,
    "sign": sign,
    "signbit": signbit,
    "silu": lambda x: x * te_math.sigmoid(x),
    "silu_dx": silu_dx,
    "sin": libm("sin"),
    "sinc": sinc,
    "sinh": libm("sinh"),
    "softplus": softplus_above,
    "softplus_dx": lambda x, dy: dy * te_math.sigmoid(x),
    "sqrt": tirx.sqrt,
    "sqrt_dx": lambda y, dy: const(y, 0.5) * dy / y,
    "square": lambda x: x * x,
    "tan": libm("tan"),
    "tanh": te_math.tanh,
    "tanh_dx": lambda y, dy: dy * ((const(y, 1) - y) * (const(y, 1) + y)),
    "threshold": lambda x, threshold, value: select(x <= const(x, threshold), const(x, value), x),
    "threshold_dx": lambda x, dy, threshold: select(x <= const(x, threshold), const(dy, 0), dy),
    "trunc": rounding(tirx.trunc),
})  # fmt: skip

elementwise({"clip": clip, "clip_dx": clip_dx}, bounds=True)


@compute("nan_to_num")
def nan_to_num(x: Tensor, nan: float, posinf: float | None, neginf: float | None, *, out: Outs) -> Any:
    dtype = out[0].dtype
    if dtype not in dtypes.FLOATS:
        return te.compute(out[0].shape, lambda *i: x(*i), "nan_to_num")
    limit = dtypes.largest(dtype)

    def replaced(value: Expr) -> Expr:
        infinity = const(value, math.inf)
        high, low = (const(value, limit if bound is None else bound) for bound in (posinf, neginf))
        low = -low if neginf is None else low
        return select(
            is_nan(value),
            const(value, nan),
            select(tirx.EQ(value, infinity), high, select(tirx.EQ(value, -infinity), low, value)),
        )

    wide = dtypes.accumulation_dtype(dtype)
    return te.compute(out[0].shape, lambda *i: let(element(x, i, wide), replaced).astype(dtype), "nan_to_num")


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
