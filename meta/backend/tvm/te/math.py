"""Transcendental functions for TE computes that vectorise on CPUs and are correct for every float.

On LLVM targets TVM calls the C library element by element. The functions here are operators of meta instead: each
passes through scheduling and vectorisation as one call and is expanded at the end of lowering, on whole vectors, to the
polynomials below. On other targets they become TVM's intrinsics.

float32 results are within 2e-7 (relative) of the true value for every input, denormals, overflow, infinities and NaN
included. float16 and bfloat16 are computed in float32, float64 by the C library. Range reductions follow W. J. Cody
and W. Waite, "Software Manual for the Elementary Functions" (1980); the polynomials are minimax fits (Lawson's
iteration on Chebyshev nodes) for this module; their comments give the interval and the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import Expr, bind, dtype_of, operator


def exp(x: Expr) -> Expr:
    """e**x."""
    return _call("exp", x)


def exp_nonpositive(x: Expr) -> Expr:
    """e**x for x <= 0, as in softmax: a third cheaper than `exp`; results below 1.6e-38 become 0."""
    return _call("exp_nonpositive", x)


def expm1(x: Expr) -> Expr:
    """e**x - 1, also where that is close to 0."""
    return _call("expm1", x)


def log(x: Expr) -> Expr:
    """The natural logarithm; -inf at 0, NaN below."""
    return _call("log", x)


def log1p(x: Expr) -> Expr:
    """log(1 + x), also where x is close to 0."""
    return _call("log1p", x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return _call("tanh", x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x)."""
    return _call("sigmoid", x)


def erf(x: Expr) -> Expr:
    """The error function."""
    return _call("erf", x)


def sine_of_turn(x: Expr) -> Expr:
    """sin(2 pi x) of a float32, |x| <= 1/4."""
    return _call("sine_of_turn", x)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution function at x (D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units")."""
    half, scale = _constants(x, 0.5, 0.7071067811865476)
    return half * x * (half + half + erf(x * scale))


def gelu_tanh(x: Expr) -> Expr:
    """The tanh approximation of `gelu` from the same paper."""
    half, scale, cubic = _constants(x, 0.5, 0.7978845608028654, 0.044715)
    return half * x * (half + half + tanh(scale * (x + cubic * x * x * x)))


def _constants(x: Expr, *values: float) -> list[Expr]:
    return [tvm.tirx.const(value, dtype_of(x)) for value in values]


def _call(name: str, x: Expr) -> Expr:
    dtype = dtype_of(x)
    if dtype in ("float16", "bfloat16"):
        return _call(name, x.astype("float32")).astype(dtype)
    if dtype == "float64":
        return _library_call(name, x)
    if dtype != "float32":
        raise ValueError(f"[{name}] got an expression of dtype {dtype}; expected a floating dtype")
    return tvm.tirx.call_intrin(dtype, _operators()[name], x)


def _library_call(name: str, x: Expr) -> Expr:
    """The float64 function of the C or CUDA library. TVM's tanh loses half the digits near 0."""
    if name == "sigmoid":
        one = tvm.tirx.const(1.0, "float64")
        return one / (one + _library_call("exp", -x))
    return tvm.tirx.call_pure_extern("float64", name.removesuffix("_nonpositive"), x)


def _intrinsic(name: str, x: Expr) -> Expr:
    """The float32 function by TVM's intrinsics, on targets other than LLVM."""
    if name == "sine_of_turn":
        return bind(x, _sine_of_turn)
    if name == "expm1":
        # e**x - 1 = 2 t / (1 - t) with t = tanh(x / 2) does not cancel near 0. The difference is accurate elsewhere.
        one, two, small = _constants(x, 1.0, 2.0, 0.5)
        t = tvm.tirx.tanh(x / two)
        return tvm.tirx.Select(tvm.tirx.abs(x) < small, two * t / (one - t), tvm.tirx.exp(x) - one)
    return getattr(tvm.tirx, name.removesuffix("_nonpositive"))(x)


def vectorisable(func: tvm.PrimFunc) -> Any:
    """`func` with TVM's intrinsics replaced by the operators of this module."""

    def replace_call(call: tvm.Call) -> Any:
        name = getattr(call.op, "name", "").removeprefix("tirx.")
        if name not in _REPLACED or dtype_of(call) not in ("float16", "bfloat16", "float32", "float64"):
            return call
        return _call(name, call.args[0])

    return tvm.structural_map(func, (tvm.Call, replace_call))


_REPLACED: Final = frozenset(("exp", "log", "log1p", "tanh", "sigmoid", "erf"))


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    _operators()


@cache
def _operators() -> dict[str, Any]:
    """The operators by name, registered with TVM on first use."""
    return {
        name: operator(name, 1, llvm=_lowering(rule), default=lambda call, name=name: _intrinsic(name, call.args[0]))
        for name, rule in _RULES.items()
    }


def _lowering(rule: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    def lower(call: Expr) -> Expr:
        return bind(call.args[0], rule)

    return lower


# The expansions. `x` is a variable, float32 with any number of lanes.

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = 0.693359375  # few bits, so that its product with an exponent is exact
_LN2_LOW: Final = -2.12194440054690583e-4
_ROUND: Final = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits of the mantissa
_INFINITY: Final = float("inf")

# (e**r - 1 - r) / r**2 on |r| <= ln(2)/2; e**r is within 3e-9.
_EXP: Final = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368889801204205, 0.0013950489228591323)

# The series of sin(2 pi x) / x in x**2; its error on |x| <= 1/4 is below 1e-11.
_SINE: Final = tuple((-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(8))


def _like(x: Expr, value: float, kind: str = "float32") -> Expr:
    """`value` with the lanes of `x`."""
    return tvm.tirx.const(value, dtype_of(x).replace("float32", kind))


def _polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Horner's rule, coefficients from the constant up."""
    value = _like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _like(x, coefficient)
    return value


def _bits(x: Expr) -> Expr:
    return tvm.tirx.reinterpret(dtype_of(x).replace("float32", "int32"), x)


def _float(bits: Expr) -> Expr:
    return tvm.tirx.reinterpret(dtype_of(bits).replace("int32", "float32"), bits)


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """x limited to [low, high]; NaN stays NaN, because comparisons with it are false."""
    below, above = _like(x, low), _like(x, high)
    return tvm.tirx.Select(x < below, below, tvm.tirx.Select(x > above, above, x))


def _at_most(x: Expr, high: float) -> Expr:
    """x limited to `high`; NaN stays NaN."""
    above = _like(x, high)
    return tvm.tirx.Select(x > above, above, x)


def _with_sign(magnitude: Expr, x: Expr) -> Expr:
    """A non-negative `magnitude` with the sign of x, including the sign of zero."""
    return _float(_bits(magnitude) | (_bits(x) & _like(x, -0x80000000, "int32")))


def _power_of_two(bits: Expr) -> Expr:
    """2**n for n in [-126, 127], given an int32 vector with the low 9 bits of n; the other bits are shifted out."""
    shift, bias = (tvm.tirx.const(value, dtype_of(bits)) for value in (23, 127 << 23))
    return _float((bits << shift) + bias)


def _reduce(x: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body(n, r)` with x = n ln 2 + r, |r| <= ln(2)/2; n is an int32 vector with the bits of `_ROUND` added."""

    def with_rounded(rounded: Expr) -> Expr:
        n = rounded - _like(x, _ROUND)
        r = x - n * _like(x, _LN2_HIGH) - n * _like(x, _LN2_LOW)
        return bind(r, lambda r: bind(_bits(rounded), lambda n: body(n, r)))

    return bind(x * _like(x, _LOG2_E) + _like(x, _ROUND), with_rounded)


def _exp(x: Expr) -> Expr:
    def scaled(n: Expr, r: Expr) -> Expr:
        # Two factors: one power of two reaches neither denormals nor the last binade before overflow.
        half = n >> tvm.tirx.const(1, dtype_of(n))
        return bind(half, lambda half: _exp_small(r) * _power_of_two(half) * _power_of_two(n - half))

    return bind(_clamp(x, -104.0, 89.0), lambda x: _reduce(x, scaled))


def _exp_nonpositive(x: Expr) -> Expr:
    zero = _like(x, 0.0)
    return tvm.tirx.Select(x < _like(x, -87.0), zero, _exp_normal(x))


def _exp_normal(x: Expr) -> Expr:
    """e**x where -87 <= x <= 88, or NaN."""
    return _reduce(x, lambda n, r: _exp_small(r) * _power_of_two(n))


def _exp_small(r: Expr) -> Expr:
    """e**r where |r| <= ln(2)/2."""
    return _polynomial(r, (1.0, 1.0, *_EXP))


def _expm1(x: Expr) -> Expr:
    # (e**r - 1 - r) / r**2 on |r| <= ln(2)/2; e**r - 1 is within 2.4e-10.
    expm1 = (0.5, 0.1666666716337204, 0.04166635498404503, 0.00833327416330576, 0.0013941022334620357,
             0.0001991357421502471)  # fmt: skip

    def scaled(n: Expr, r: Expr) -> Expr:
        def body(half: Expr) -> Expr:  # 2**(n - 1), which is finite for every n
            expm1_r = _polynomial(r, expm1) * (r * r) + r
            return (half * expm1_r + (half - _like(r, 0.5))) * _like(r, 2.0)

        return bind(_power_of_two(n - tvm.tirx.const(1, dtype_of(n))), body)

    # Tiny values are returned, because the reduction would turn -0.0 into 0.0.
    tiny = tvm.tirx.abs(x) < _like(x, 1e-8)
    return tvm.tirx.Select(tiny, x, bind(_clamp(x, -20.0, 89.0), lambda x: _reduce(x, scaled)))


def _log(x: Expr) -> Expr:
    # (log(1+f) - f + f**2/2) / f**3 on sqrt(1/2) <= 1+f <= sqrt(2); log is within 7.5e-10.
    log = (0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053, 0.14219550788402557,
           -0.12405591458082199, 0.11888174712657928, -0.11675640940666199, 0.06746601313352585)  # fmt: skip
    smallest, grow = _like(x, 1.1754943508222875e-38), _like(x, 8388608.0)
    integer = dtype_of(x).replace("float32", "int32")

    def const(value: int) -> Expr:
        return tvm.tirx.const(value, integer)

    def finite(bits: Expr) -> Expr:
        # The exponent for which the mantissa is between sqrt(1/2) and sqrt(2).
        return bind((bits - const(0x3F3504F3)) >> const(23), lambda e: with_exponent(bits, e))

    def with_exponent(bits: Expr, e: Expr) -> Expr:
        f = _float(bits - (e << const(23))) - _like(x, 1.0)
        n = (e - tvm.tirx.Select(x < smallest, const(23), const(0))).astype(dtype_of(x))
        return bind(f, lambda f: bind(n, lambda n: assemble(f, n)))

    def assemble(f: Expr, n: Expr) -> Expr:
        tail = _polynomial(f, log) * f * (f * f) + n * _like(x, _LN2_LOW) - _like(x, 0.5) * f * f
        return tail + f + n * _like(x, _LN2_HIGH)

    normal = tvm.tirx.Select(x < smallest, x * grow, x)
    result = bind(_bits(normal), finite)
    zero, infinity = _like(x, 0.0), _like(x, _INFINITY)
    special = tvm.tirx.Select(x == zero, -infinity, _like(x, float("nan")))
    return tvm.tirx.Select(x < infinity, tvm.tirx.Select(x > zero, result, special), x)


def _log1p(x: Expr) -> Expr:
    one, zero, infinity = _like(x, 1.0), _like(x, 0.0), _like(x, _INFINITY)

    def body(u: Expr) -> Expr:
        # log(u) is accurate for u = 1 + x rounded; lost / u corrects for the rounding (W. Kahan).
        lost = x - (u - one)
        value = bind(u, _log) + lost / u
        plain = tvm.tirx.Select(u == zero, -infinity, tvm.tirx.Select(u < infinity, value, u))
        return tvm.tirx.Select(tvm.tirx.abs(x) < _like(x, 5e-8), x, plain)

    return bind(one + x, body)


def _tanh(x: Expr) -> Expr:
    # (tanh(x)/x - 1) / x**2 in x**2, |x| <= 0.625; tanh is within 4.2e-9.
    tanh = (-0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650578662753105,
            -0.005717036779969931)  # fmt: skip
    one, two = _like(x, 1.0), _like(x, 2.0)

    def body(a: Expr) -> Expr:
        near = bind(a * a, lambda z: _polynomial(z, tanh) * z * a + a)
        far = one - two / (bind(_at_most(a, 10.0) * two, _exp_normal) + one)
        return _with_sign(tvm.tirx.Select(a < _like(x, 0.625), near, far), x)

    return bind(tvm.tirx.abs(x), body)


def _sigmoid(x: Expr) -> Expr:
    def body(e: Expr) -> Expr:  # e**-|x|, which cannot overflow
        one = _like(x, 1.0)
        return tvm.tirx.Select(x < _like(x, 0.0), e, one) / (one + e)

    return bind(-tvm.tirx.abs(x), lambda a: bind(_exp(a), body))


def _erf(x: Expr) -> Expr:
    # -log(1 - erf(t)) on 0.93 <= t <= 4; erf is within 1.5e-9.
    erfc = (0.00022278106189332902, 1.1275627613067627, 0.6373738050460815, 0.10376227647066116,
            -0.022144746035337448, 0.003022474003955722, -0.00019381061429157853)  # fmt: skip
    # erf(x)/x - 1 in x**2, |x| <= 0.93; within 1.8e-8.
    erf = (0.12837910652160645, -0.37612494826316833, 0.11281802505254745, -0.02676556631922722,
           0.00499098002910614, -0.0005976893589831889)  # fmt: skip
    one = _like(x, 1.0)

    def body(a: Expr) -> Expr:
        near = bind(a * a, lambda z: _polynomial(z, erf) * a + a)
        far = one - bind(_at_most(a, 4.0), lambda t: bind(-_polynomial(t, erfc), _exp_normal))
        return _with_sign(tvm.tirx.Select(a < _like(x, 0.93), near, far), x)

    return bind(tvm.tirx.abs(x), body)


def _sine_of_turn(x: Expr) -> Expr:
    return bind(x * x, lambda square: _polynomial(square, _SINE)) * x


_RULES: Final[dict[str, Callable[[Expr], Expr]]] = {
    "exp": _exp,
    "exp_nonpositive": _exp_nonpositive,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sine_of_turn": _sine_of_turn,
}
