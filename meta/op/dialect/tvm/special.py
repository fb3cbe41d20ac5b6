"""TE computes of special functions of errors, normal distributions and Bessel.

They are computed in float64 and rounded once, so that one set of approximations serves all dtypes; they are within a
few units in the last place of float64. For results with fewer digits, exponentials within them have 11 digits and
logarithms as many as float32 (`_FOR_FLOAT32`), on vectors: the C library takes numbers one by one. The polynomials are
Chebyshev interpolations for this module, from values of 40 digits; their variable is the argument mapped to [-1, 1],
and their comments give interval and error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import clamp, const, is_nan, let, libm, of_float64, select
from meta.op.dialect.tvm import Registrar
from meta.records import record

elementwise = Registrar(__file__).elementwise

_INF: Final = math.inf


@record
class Polynomial:
    """Coefficients, from the constant up, in an argument mapped from [low, high] to [-1, 1]."""

    low: float
    high: float
    coefficients: tuple[float, ...]

    def __call__(self, x: Expr) -> Expr:
        """The value at x, by Horner's rule."""

        def horner(t: Expr) -> Expr:
            value = const(t, self.coefficients[-1])
            for coefficient in reversed(self.coefficients[:-1]):
                value = value * t + const(t, coefficient)
            return value

        return let((x - const(x, (self.low + self.high) / 2)) / const(x, (self.high - self.low) / 2), horner)


# exp(-x) I0(x) on 0 <= x <= 8; within 7.3e-19.
_I0_SMALL: Final = Polynomial(0.0, 8.0, (
    0.2070019212239867, -0.11300432688620549, 0.09451562853995103, -0.08904344136075991, 0.08734341617552291,
    -0.08496338091615124, 0.07927522590716898, -0.06954119561742342, 0.056777032019843215, -0.04298594945226738,
    0.03017791202356886, -0.019682654708082413, 0.011960077903963348, -0.006792399792271578, 0.0036171264596770616,
    -0.0018118870527295522, 0.0008563152483951447, -0.0003829015089457559, 0.0001624054672701359,
    -6.550956130635514e-05, 2.5202271984440893e-05, -9.25059710625537e-06, 3.2293850630678377e-06,
    -1.0891964284507317e-06, 3.675592893288293e-07, -1.1339523685907105e-07, 2.6273368345256394e-08,
    -7.860369707508212e-09, 4.469372581856615e-09, -1.1662904878442954e-09,
))  # fmt: skip
# exp(-x) I1(x) / x on 0 <= x <= 8; within 5.6e-20.
_I1_SMALL: Final = Polynomial(0.0, 8.0, (
    0.044687709875608835, -0.06112433802966629, 0.0680575999095116, -0.0684826062058255, 0.0637674037134072,
    -0.05528003922705058, 0.044674572621255064, -0.03367135551994034, 0.023686016957724227, -0.01557130925657511,
    0.00958396215077406, -0.005534567760544582, 0.003005762419557192, -0.0015388749636515487, 0.000744512345281566,
    -0.0003411747437353928, 0.00014842124144631648, -6.142651349494123e-05, 2.4233756432468166e-05,
    -9.131846315273642e-06, 3.2938951625746042e-06, -1.1380759138279984e-06, 3.759400376008922e-07,
    -1.2000364861910367e-07, 3.8028049651067336e-08, -1.1191257727176943e-08, 2.6037822441041467e-09,
    -7.379291130374042e-10, 3.727630409237771e-10, -9.365751909742237e-11,
))  # fmt: skip
# exp(-x) sqrt(x) I0(x) in 1 / x, x >= 8; within 6.4e-17.
_I0_LARGE: Final = Polynomial(0.0, 0.125, (
    0.40217650944500816, 0.003360551983667876, 0.00013621607437737268, 1.1143033791893046e-05, 1.483848150861771e-06,
    2.973597885290274e-07, 8.871293193604678e-08, 3.9327123085832934e-08, 2.162446034312458e-08,
    7.543775238250733e-09, -7.116744499757987e-09, -1.335632771743214e-08, -4.270649721363825e-09,
    7.396966587219158e-09, 5.1432089858622845e-09, -3.21251295103573e-09, -2.8927333669603943e-09,
    1.1661396927314527e-09, 9.544598596408217e-10, -3.0719032844097364e-10, -1.4445666241808038e-10,
    4.135870336904037e-11,
))  # fmt: skip
# exp(-x) sqrt(x) I1(x) in 1 / x, x >= 8; within 6.6e-17.
_I1_LARGE: Final = Polynomial(0.0, 0.125, (
    0.3893984590258723, -0.009749577193235751, -0.0002192357638187367, -1.5038547201402334e-05,
    -1.8349107416211804e-06, -3.483855125273481e-07, -1.0000323944983054e-07, -4.3130341641824356e-08,
    -2.3453111618217135e-08, -8.417810881556892e-09, 7.118573210000024e-09, 1.3986230294575344e-08,
    4.7942444927275885e-09, -7.500258824785232e-09, -5.508409408958088e-09, 3.158127700170617e-09,
    3.0582654028044287e-09, -1.1153074851895528e-09, -1.0032283190965858e-09, 2.8795297002473246e-10,
    1.513858549435606e-10, -3.8283098239014647e-11,
))  # fmt: skip
# (1 + 2 x) erfcx(x) in (x - 3.75) / (x + 3.75), x >= 0; within 1.1e-23.
_ERFCX: Final = Polynomial(-1.0, 1.0, (
    1.2375126308378275, -0.14024059858554702, 0.00358541548546365, 0.0822767384901511, -0.10880393014170482,
    0.09230432116019585, -0.058693398590615634, 0.028362277421555147, -0.009746579546701207, 0.0017556258320736318,
    0.0002937135873617436, -0.0002901539774329213, 5.1649446972176596e-05, 2.238390580972469e-05,
    -1.1445189761124184e-05, -9.728367330930669e-07, 1.753797035854126e-06, -5.827639249468204e-08,
    -2.617786736244897e-07, 2.428648228965432e-08, 4.177374007863359e-08, -4.354740434087389e-09,
    -7.262241616725378e-09, 4.896621151024344e-10, 1.3397580763735025e-09, 1.2454321336498724e-11,
    -2.4709889845142697e-10, -2.7246644768515242e-11, 4.135554070486661e-11, 9.003206355110558e-12,
    -5.341222387829597e-12, -1.6894424067289643e-12, 3.7973609159274636e-13, 1.5095690851582698e-13,
))  # fmt: skip
# erfinv(x) / x in x**2, |x| <= 3/4; within 2e-17.
_ERFINV: Final = Polynomial(0.0, 0.5625, (
    0.9640216376238271, 0.09346781082872307, 0.019691156241496865, 0.005173013414370822, 0.0015097228867733713,
    0.0004685490796831843, 0.00015139579122027278, 5.032913982213929e-05, 1.708828654569231e-05, 5.89736517479437e-06,
    2.061734228529224e-06, 7.284558897880438e-07, 2.598430663964601e-07, 9.330437282709308e-08, 3.334051192517468e-08,
    1.2109276223455146e-08, 4.8691017049838515e-09, 1.7878719957174159e-09, 3.2357791771715105e-10,
    1.181190976368536e-10, 1.8444162852224394e-10, 6.872940508449048e-11,
))  # fmt: skip
# The inverse of erfc at exp(-s**2) on 1.177 <= s <= 3; within 2.7e-18.
_ERFCINV_NEAR: Final = Polynomial(1.177, 3.0, (
    1.7610761047685088, 0.9566708938986019, -0.000649274640803981, -0.004189541874005419, 0.002805415080227907,
    -0.001365083187333161, 0.000572067906006145, -0.00021550443078936034, 7.347194270832296e-05,
    -2.226161740143453e-05, 5.626749712047903e-06, -9.197647623207685e-07, -1.1810652726201146e-07,
    2.0534951929161547e-07, -1.2573064954267487e-07, 5.913088341608251e-08, -2.411488256207024e-08,
    8.386227681167266e-09, -2.0461369985859054e-09, 4.211514617977004e-10, -2.796991278959483e-10,
    1.5525296565240658e-11, 1.3594045655990765e-10, -5.273673030767844e-11,
))  # fmt: skip
# The same on 3 <= s <= 8; within 2.9e-17.
_ERFCINV_FAR: Final = Polynomial(3.0, 8.0, (
    5.290983392570703, 2.554634160006797, -0.015839646446862834, 0.004523561078864523, -0.0011631802095053937,
    0.00021359094426233436, 1.721330109414857e-05, -4.970417165505569e-05, 3.7900325573774266e-05,
    -2.2747017566913084e-05, 1.2279005951939485e-05, -6.233541623455329e-06, 3.03587358360804e-06,
    -1.4349757141730211e-06, 6.646873785937247e-07, -2.9999301338964934e-07, 1.2875807175375086e-07,
    -5.67545167232424e-08, 2.901077558946025e-08, -1.1750034046155333e-08, 1.735916720514636e-09,
    -9.667442394347411e-10, 1.6170855989118926e-09, -5.685745479629251e-10,
))  # fmt: skip
# The same on 8 <= s <= 27.3; within 9.2e-15 of values up to 27.
_ERFCINV_EXTREME: Final = Polynomial(8.0, 27.3, (
    17.552302797565222, 9.688040038844383, -0.016630668293301135, 0.0075861056080548045, -0.0035344133888614055,
    0.001665916511298464, -0.0007900791307085888, 0.00037565464766331323, -0.0001785684598415227,
    8.464355368501722e-05, -3.9856613620215735e-05, 1.8636040612552413e-05, -8.8104950732969e-06,
    4.0342730457564386e-06, -1.3440867663249094e-06, 5.139931069787713e-07, -9.068707194691443e-07,
    4.7068566455074504e-07, 5.276388252439741e-07, -3.2886324782836293e-07, -3.115950636731266e-07,
    1.8221717803736424e-07, 8.940660140041539e-08, -5.435499055020662e-08,
))  # fmt: skip


# --- functions that the computes call

Unary = Callable[[Expr], Expr]
_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = 0.693147180369123816490
_LN2_LOW: Final = 1.90821492927058770002e-10
_ROUND: Final = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the nearest integer in the low bits of the mantissa
# e**r on |r| <= ln(2)/2, within 7e-12.
_EXP: Final = Polynomial(-1.0, 1.0, tuple(1 / math.factorial(n) for n in range(10)))


def _exp(x: Expr) -> Expr:
    """e**x of a float64 within 7e-12 of its size; x is clipped to [-700, 700]."""

    def with_rounded(x: Expr, rounded: Expr) -> Expr:
        n = rounded - const(x, _ROUND)
        r = x - n * const(x, _LN2_HIGH) - n * const(x, _LN2_LOW)
        exponent = (tirx.reinterpret("int64", rounded) + tirx.const(1023, "int64")) << tirx.const(52, "int64")
        return _EXP(r) * tirx.reinterpret("float64", exponent)

    return let(
        clamp(x, -700.0, 700.0),
        lambda x: let(x * const(x, _LOG2_E) + const(x, _ROUND), lambda rounded: with_rounded(x, rounded)),
    )


def _erfc(x: Expr) -> Expr:
    """The complementary error function of a float64, with `_exp`."""

    def of_both(positive: Expr) -> Expr:
        return select(x < const(x, 0), const(x, 2) - positive, positive)

    return let(let(tirx.abs(x), lambda size: _exp(-size * size) * erfcx_positive(size)), of_both)


def _of_float32(function: Unary) -> Unary:
    return lambda x: function(x.astype("float32")).astype("float64")


@dataclass(frozen=True, slots=True)
class _Functions:
    """Functions of a float64 that a compute calls."""

    exp: Unary
    log: Unary
    log1p: Unary
    erfc: Unary


_FOR_FLOAT64: Final = _Functions(te_math.exp, te_math.log, te_math.log1p, libm("erfc"))
_FOR_FLOAT32: Final = _Functions(_exp, _of_float32(te_math.log), _of_float32(te_math.log1p), _erfc)


def _calling(function: Callable[[Expr, _Functions], Expr]) -> Unary:
    """`function` of the operand as a float64 and of the functions for the digits of its dtype."""

    def run(x: Expr) -> Expr:
        functions = _FOR_FLOAT64 if dtype_of(x) == "float64" else _FOR_FLOAT32
        return of_float64(lambda wide: function(wide, functions))(x)

    return run


# --- error functions


def erfcx_positive(x: Expr) -> Expr:
    """exp(x**2) erfc(x) for x >= 0 (M. Shepherd and J. Laframboise, "Chebyshev Approximation of (1 + 2x) exp(x**2)
    erfc x in 0 <= x < inf", 1981)."""
    one, two = const(x, 1), const(x, 2)
    t = one - const(x, 7.5) / (x + const(x, 3.75))
    return _ERFCX(t) / (one + two * x)


def erfcx(x: Expr, functions: _Functions) -> Expr:
    def of_both(mirrored: Expr) -> Expr:
        return select(x < const(x, 0), const(x, 2) * functions.exp(x * x) - mirrored, mirrored)

    return let(let(tirx.abs(x), erfcx_positive), of_both)


def erfcx_integral(x: Expr, n: int, narrow: bool) -> Expr:
    """Of large x by the continued fraction of the quotients of successive orders; below, where that converges slowly,
    by the recurrence from erfcx (M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 7.2.5), which loses
    2 x**2 digits of float64 for each order. narrow: whether the result has at most the digits of float32."""
    steps, start = (6, 20.0) if narrow and n <= 2 else (80, 1.75)
    limit, two = const(x, start), const(x, 2)
    far = select(x < limit, limit, x)
    value, quotient = const(x, 2 / math.sqrt(math.pi)), const(x, 0)
    for k in range(steps + n, n, -1):
        quotient = const(x, 1) / (const(x, 2 * k + 2) * quotient + two * far)

    def by_fraction(quotient: Expr, value: Expr, k: int) -> Expr:
        following = const(x, 1) / (const(x, 2 * k + 2) * quotient + two * far)
        product = value * following
        return product if k == 0 else let(following, lambda q: by_fraction(q, product, k - 1))

    def by_recurrence(before: Expr, value: Expr, k: int) -> Expr:
        if k > n:
            return value
        return let((before - two * near * value) / const(x, 2 * k), lambda v: by_recurrence(value, v, k + 1))

    near = select(x < limit, x, limit)
    first = let(near, lambda v: erfcx(v, _FOR_FLOAT32 if narrow else _FOR_FLOAT64))
    below = let(first, lambda e: by_recurrence(const(x, 2 / math.sqrt(math.pi)), e, 1))
    return select(x < limit, below, let(quotient, lambda q: by_fraction(q, value, n)))


def erfc_inverse(q: Expr, log: Unary) -> Expr:
    """The inverse of erfc on 0 < q <= 1/4, in sqrt(-log(q)), in which it is almost linear."""

    def of_root(s: Expr) -> Expr:
        near = _ERFCINV_NEAR(s)
        far = _ERFCINV_FAR(s)
        extreme = _ERFCINV_EXTREME(s)
        return select(s < const(s, 3), near, select(s < const(s, 8), far, extreme))

    return let(tirx.sqrt(-log(q)), of_root)


def erfinv(x: Expr, functions: _Functions) -> Expr:
    """NaN outside of [-1, 1]. Small arguments by a polynomial, others by the inverse of erfc at 1 - |x|."""
    one, infinity = const(x, 1), const(x, _INF)

    def of_size(size: Expr) -> Expr:
        central = x * _ERFINV(x * x)
        tail = erfc_inverse(clamp(one - size, 1e-300, 0.25), functions.log)
        signed = let(tail, lambda t: select(x < const(x, 0), -t, t))
        edge = select(size > one, const(x, math.nan), x * infinity)
        return select(size <= const(x, 0.75), central, select(size < one, signed, edge))

    return let(tirx.abs(x), of_size)


def ndtri(p: Expr, functions: _Functions) -> Expr:
    """NaN outside of [0, 1]."""
    zero, one, two, root = const(p, 0), const(p, 1), const(p, 2), const(p, math.sqrt(2))
    eighth, infinity, nan = const(p, 0.125), const(p, _INF), const(p, math.nan)
    is_low, is_high = p < eighth, p > one - eighth

    def of_tail(q: Expr) -> Expr:
        tail = root * erfc_inverse(clamp(q, 5e-324, 0.25), functions.log)
        centre = clamp(two * p - one, -0.75, 0.75)
        inner = root * centre * _ERFINV(centre * centre)
        inside = let(tail, lambda t: select(is_low, -t, select(is_high, t, inner)))
        edge = select(tirx.EQ(p, zero), -infinity, select(tirx.EQ(p, one), infinity, nan))
        return select(tirx.And(p > zero, p < one), inside, edge)

    return let(two * select(is_high, one - p, p), of_tail)


def ndtr(x: Expr, functions: _Functions) -> Expr:
    return const(x, 0.5) * let(x * const(x, -math.sqrt(0.5)), functions.erfc)


def log_ndtr(x: Expr, functions: _Functions) -> Expr:
    """By erfcx below -1, where the distribution function underflows."""
    half, root = const(x, 0.5), const(x, math.sqrt(0.5))
    tail = let(tirx.abs(x) * root, erfcx_positive)
    low = functions.log(half * tail) - half * x * x
    return select(x < const(x, -1), low, functions.log1p(-half * let(x * root, functions.erfc)))


# --- Bessel functions


def _bessel_scaled(small: Polynomial, large: Polynomial, size: Expr) -> Expr:
    """exp(-|x|) times a function of |x| (C. Clenshaw, "Chebyshev Series for Mathematical Functions", 1962)."""
    eight = const(size, 8)
    near = small(select(size < eight, size, eight))
    inverse = const(size, 1) / select(size < eight, eight, size)
    far = large(inverse) * tirx.sqrt(inverse)
    return select(size < eight, near, far)


def i0e(x: Expr) -> Expr:
    return select(is_nan(x), x, let(tirx.abs(x), partial(_bessel_scaled, _I0_SMALL, _I0_LARGE)))


def i1e(x: Expr) -> Expr:
    def of_size(size: Expr) -> Expr:
        value = _bessel_scaled(_I1_SMALL, _I1_LARGE, size)
        sign = select(x < const(x, 0), const(x, -1), const(x, 1))
        return value * select(size < const(x, 8), x, sign)

    return select(is_nan(x), x, let(tirx.abs(x), of_size))


def unscaled(scaled: Unary) -> Callable[[Expr, _Functions], Expr]:
    """The function from exp(-|x|) times it, by two factors: exp overflows earlier than the function."""

    def run(x: Expr, functions: _Functions) -> Expr:
        size = clamp(x, -2000.0, 2000.0)
        factor = functions.exp(tirx.abs(size) * const(x, 0.5))
        return let(factor, lambda half: half * (half * let(size, scaled)))

    return run


elementwise({
    "erfcx": _calling(erfcx),
    "erfcx_integral": lambda x, n: of_float64(partial(erfcx_integral, n=n, narrow=dtype_of(x) != "float64"))(x),
    "erfinv": _calling(erfinv),
    "i0": _calling(unscaled(i0e)),
    "i0e": of_float64(i0e),
    "i1": _calling(unscaled(i1e)),
    "i1e": of_float64(i1e),
    "log_ndtr": _calling(log_ndtr),
    "ndtr": _calling(ndtr),
    "ndtri": _calling(ndtri),
})  # fmt: skip
