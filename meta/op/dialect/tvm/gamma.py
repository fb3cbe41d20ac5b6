"""TE computes of the gamma function's relatives.

They are computed in float64 and rounded once. Formulas are of M. Abramowitz and I. Stegun, "Handbook of Mathematical
Functions" (1964), by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, nearbyint
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import (
    bound,
    const,
    element,
    is_negative,
    let,
    libm,
    of_float64,
    rounded_numbers,
    select,
)
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import nest
from meta.op.dialect.tvm import Registrar

_registrar = Registrar(__file__)
compute, elementwise = _registrar.compute, _registrar.elementwise

_WIDE: Final = "float64"
_INF: Final = math.inf

_BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
                     -174611 / 330, 854513 / 138, -236364091 / 2730)  # fmt: skip
"""The Bernoulli numbers of even index, from the second."""
_SHIFT: Final = 10
"""Terms that are summed one by one before an asymptotic series takes over."""


def digamma(x: Expr) -> Expr:
    """By the recurrence 6.3.5 up to 10 and the series 6.3.18; below 0 by the reflection 6.3.7."""
    zero, one, ten = const(x, 0), const(x, 1), const(x, _SHIFT)

    def of_positive(y: Expr) -> Expr:
        is_small = y < ten
        first = select(is_small, y, ten)
        terms = [one / (first + const(x, k)) for k in range(_SHIFT)]
        shifted = select(is_small, y + ten, y)

        def series(z: Expr) -> Expr:
            square = one / (z * z)
            tail = zero
            for k in reversed(range(8)):
                tail = (tail + const(x, _BERNOULLI[k] / (2 * k + 2))) * square
            value = te_math.log(z) - const(x, 0.5) / z - tail
            return value - select(is_small, sum(terms[1:], terms[0]), zero)

        return let(shifted, series)

    def reflected(value: Expr) -> Expr:
        is_pole = tirx.EQ(x, tirx.floor(x))
        mirrored = value - const(x, math.pi) * _cotangent(x)
        infinity = const(x, _INF)
        at_zero = select(is_negative(x), infinity, -infinity)
        pole = select(tirx.EQ(x, zero), at_zero, const(x, math.nan))
        return select(x > zero, value, select(is_pole, pole, mirrored))

    return let(let(select(x > zero, x, one - x), of_positive), reflected)


def zeta_positive(s: Expr, q: Expr, power: Callable[[Expr, int], Expr] | None = None) -> Expr:
    """The sum of (q + k)**-s over k >= 0 for s > 1 and q > 0, by the formula of Euler and Maclaurin (23.1.30).

    power: computes w**(e - s) for e of 0 or 1, by default in the C library."""
    # Of zeta in the factors of its series, whose terms are 0 from there on: infinity times 0 would be NaN.
    largest_order = 1000.0
    one, power = const(q, 1), power or (lambda w, e: libm("pow")(w, const(q, e) - s))
    total = power(q, 0)
    for k in range(1, _SHIFT):
        total = total + power(q + const(q, k), 0)

    def with_tail(w: Expr, integral: Expr) -> Expr:
        # Of the largest q, w**-s is below all numbers, and this integral (times s - 1) is not.
        def series(inverse: Expr, square: Expr) -> Expr:
            last, order = integral * inverse, tirx.min(s, const(q, largest_order))
            tail, factor = total + integral / (s - one) + const(q, 0.5) * last, order * last * inverse
            for j, number in enumerate(_BERNOULLI):
                tail = tail + factor * const(q, number / math.factorial(2 * j + 2))
                factor = factor * (order + const(q, 2 * j + 1)) * (order + const(q, 2 * j + 2)) * square
            return tail

        return bound(series, one / w, one / (w * w))

    shifted = q + const(q, _SHIFT)
    return bound(with_tail, shifted, power(shifted, 1))


def _reciprocal_power(w: Expr, exponent: int) -> Any:
    """w**-exponent for an exponent from 1 on, by multiplications: the C library takes 30 times as long."""
    out, square, left = None, const(w, 1) / w, exponent
    while left:
        if left & 1:
            out = square if out is None else out * square
        left >>= 1
        square = square * square
    return out


def _cotangent(x: Expr) -> Expr:
    """cot(pi x), 0 at integers: the quotient of the series of cos and sin at the distance from the nearest one."""

    def of_angle(angle: Expr) -> Expr:
        def quotient(square: Expr) -> Expr:
            cosine, sine = (
                _horner(tuple((-1.0) ** k / math.factorial(2 * k + odd) for k in range(12)), square) for odd in (0, 1)
            )
            return cosine / (sine * select(tirx.EQ(angle, const(x, 0)), const(x, _INF), angle))

        return let(angle * angle, quotient)

    return let((x - nearbyint(x)) * const(x, math.pi), of_angle)


def zeta(s: Expr, q: Expr) -> Expr:
    """inf at s = 1 and at the poles q = 0, -1, ...; NaN for s < 1, and for other negative q unless s is an integer.

    Negative q: the sum over all integers k, less the terms below q."""
    zero, one, nan, infinity = const(s, 0), const(s, 1), const(s, math.nan), const(s, _INF)
    distance = q - nearbyint(q)
    half = s * const(s, 0.5)
    sign = select(tirx.EQ(half, tirx.floor(half)), one, -one)  # (-1)**s

    def mirrored(order: Expr, d: Expr) -> Expr:
        others = bound(zeta_positive, order, one - d) - bound(zeta_positive, order, one - q)
        return libm("pow")(d, -order) + bound(zeta_positive, order, one + d) + sign * others

    is_pole = tirx.Or(tirx.EQ(s, one), tirx.EQ(q, tirx.floor(q)))
    is_mirrored = tirx.And(tirx.EQ(s, tirx.floor(s)), q < zero)
    below = tirx.if_then_else(is_mirrored, bound(mirrored, s, distance), nan)
    beside = select(is_pole, infinity, below)
    regular = tirx.if_then_else(q > zero, bound(zeta_positive, s, q), beside)
    return tirx.if_then_else(s > one, regular, select(tirx.EQ(s, one), infinity, nan))


def polygamma(x: Expr, n: int) -> Expr:
    """(-1)**(n + 1) n! zeta(n + 1, x) (6.4.10); below 0 by the reflection 6.4.7."""
    if n == 0:
        return digamma(x)
    zero, one = const(x, 0), const(x, 1)
    scale = (-1.0) ** (n + 1) * math.factorial(n)

    def reflected(value: Expr) -> Expr:
        is_pole = tirx.And(tirx.EQ(x, tirx.floor(x)), x > -const(x, _INF))
        derivative = let(_cotangent(x), lambda c: _horner(_cotangent_derivative(n), c))
        mirrored = const(x, (-1.0) ** (n + 1)) * (const(x, (-1.0) ** n * math.pi ** (n + 1)) * derivative - value)
        return select(x > zero, value, select(is_pole, const(x, math.copysign(_INF, scale)), mirrored))

    positive = select(x > zero, x, one - x)

    def of_positive(q: Expr) -> Expr:
        return const(x, scale) * zeta_positive(const(x, n + 1), q, lambda w, e: _reciprocal_power(w, n + 1 - e))

    return let(let(positive, of_positive), reflected)


def _cotangent_derivative(n: int) -> tuple[float, ...]:
    """The n-th derivative of cot as a polynomial in cot, from the constant up: cot' = -(1 + cot**2)."""
    out = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(out)][1:]
        out = [0.0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            out[k] -= c
            out[k + 2] -= c
    return tuple(out)


def _horner(coefficients: tuple[float, ...], x: Expr) -> Expr:
    value = const(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + const(x, coefficient)
    return value


# --- incomplete gamma functions


_MOST_TERMS: Final = 100_000
"""Where a sum ends that has not converged: near x = a it takes some multiples of sqrt(a) terms."""
_LARGE: Final = 1e6
"""The first parameter from which on the incomplete gamma functions are computed by their asymptotic expansion."""
_FARTHEST: Final = 0.06
"""Distance of x from a, relative to a, from which on P and Q are 0 and 1 for all large a."""
_EXPANSION: Final = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760),
)
"""Coefficients of Temme's expansion: powers of eta by rows, rows by powers of 1 / a (DLMF 8.12.12)."""


def incomplete_gammas(a: Any, x: Any, out: TensorSpec, upper: bool) -> Any:
    """P(a, x), or Q(a, x) for `upper`: the series 6.5.29 for x < a + 1, else the fraction 6.5.31 by the method of W.
    Lentz (1976), each until its terms no longer count. Values below 1e-10 lose digits where the other is computed. Of
    large a, both would need as many terms as sqrt(a), and N. M. Temme's expansion (1979) takes their place."""
    # Size of a term, relative to the sum, that does not count for a result of float32. Together, the terms that follow
    # can be a thousand times as large.
    tolerance = 1e-11
    shape, is_double = out.shape, str(out.dtype) == "float64"
    # Where Q is 1 - P, it may be much smaller than P.
    series_tolerance = 1e-17 if is_double or upper else tolerance
    fraction_tolerance = 2e-16 if is_double else tolerance

    def operand(value: Any) -> Any:
        return te.compute(shape, lambda *i: element(value, i, _WIDE), "operand")

    def element_of(index: tuple[Any, ...], buffers: list[Any]) -> None:
        first, second, result = buffers
        position = index or 0
        state = registers(6, _WIDE)
        a, x = first[position], second[position]
        is_regular = tirx.And(tirx.And(a > _number(0), a < _number(_INF)), tirx.And(x > _number(0), x < _number(_INF)))
        is_small, by_series = a < _number(_LARGE), x < a + _number(1)
        with script_tirx.If(tirx.And(tirx.And(is_regular, is_small), by_series)):
            with script_tirx.Then():
                _series(state, a, x, series_tolerance)
                result[position] = _number(1) - state[0] if upper else state[0]
            with script_tirx.Else(), script_tirx.If(tirx.And(is_regular, is_small)):
                with script_tirx.Then():
                    _fraction(state, a, x, fraction_tolerance)
                    result[position] = state[0] if upper else _number(1) - state[0]
                with script_tirx.Else():
                    result[position] = select(is_regular, _of_large(a, x, upper), _limits(a, x, upper))

    sums = te.extern([shape], [operand(a), operand(x)], nest(shape, element_of), dtype=_WIDE, name="incomplete_gamma")
    return te.compute(shape, lambda *i: sums(*i).astype(out.dtype), "igamma")


def _number(value: float) -> Expr:
    return tirx.const(value, _WIDE)


def _series(state: Any, a: Expr, x: Expr, tolerance: float) -> None:
    """state[0] = P(a, x). Elements: sum, term, number of the term."""
    state[0], state[1], state[2] = _number(1), _number(1), _number(0)
    with script_tirx.While(tirx.And(state[1] > state[0] * _number(tolerance), state[2] < _number(_MOST_TERMS))):
        state[2] = state[2] + _number(1)
        state[1] = state[1] * (x / (a + state[2]))  # the quotients of several terms overlap
        state[0] = state[0] + state[1]
    _multiply_power_term(state, a, x, is_next=True)


def _fraction(state: Any, a: Expr, x: Expr, tolerance: float) -> None:
    """state[0] = Q(a, x). Elements: value, step - 1, number of the step, b, c, d."""
    tiny = _number(1e-300)
    state[3] = x + _number(1) - a
    state[4] = _number(1e300)
    state[5] = _number(1) / state[3]
    state[0], state[1], state[2] = state[5], _number(1), _number(0)
    with script_tirx.While(tirx.And(tirx.abs(state[1]) > _number(tolerance), state[2] < _number(_MOST_TERMS))):
        state[2] = state[2] + _number(1)
        state[3] = state[3] + _number(2)
        state[5] = _apart_from_zero(state[2] * (a - state[2]) * state[5] + state[3], tiny)
        state[4] = _apart_from_zero(state[3] + state[2] * (a - state[2]) / state[4], tiny)
        state[5] = _number(1) / state[5]
        state[1] = state[4] * state[5]
        state[0] = state[0] * state[1]
        state[1] = state[1] - _number(1)
    _multiply_power_term(state, a, x, is_next=False)


def _apart_from_zero(value: Expr, tiny: Expr) -> Expr:
    return select(tirx.abs(value) < tiny, tiny, value)


def _multiply_power_term(state: Any, a: Expr, x: Expr, *, is_next: bool) -> None:
    """state[0] *= x**a exp(-x) / Gamma(a), or over Gamma(a + 1) = a Gamma(a), which is 1 for the smallest a; for large
    a, where the logarithms cancel, by Stirling's series 6.1.37."""
    difference = (x - a) / a
    inverse = _number(1) / (a * a)
    tail = (
        _number(1 / 12) - (_number(1 / 360) - (_number(1 / 1260) - inverse / _number(1680)) * inverse) * inverse
    ) / a
    exponent = a * (te_math.log1p(difference) - difference) - tail
    with script_tirx.If(a < _number(20)):
        with script_tirx.Then():
            gamma_argument = a + _number(1) if is_next else a
            state[0] = state[0] * te_math.exp(a * te_math.log(x) - x - libm("lgamma")(gamma_argument))
        with script_tirx.Else():
            scaled = te_math.exp(exponent) * tirx.sqrt(a / _number(2 * math.pi))
            state[0] = state[0] * (scaled / a if is_next else scaled)


def _of_large(a: Expr, x: Expr, upper: bool) -> Expr:
    """P or Q of large a: Q is erfc(eta sqrt(a / 2)) / 2 plus a remainder (DLMF 8.12.4), where eta**2 / 2 is
    d - log(1 + d) and d the distance of x from a, relative to a."""

    def of_distance(d: Expr) -> Expr:
        series = _horner(tuple((-1.0) ** k / (k + 2) for k in range(14)), d)  # d - log(1 + d) is this times d**2
        return bound(lambda eta: of_eta(eta, a * eta * eta * _number(0.5)), d * tirx.sqrt(_number(2) * series))

    def of_eta(eta: Expr, exponent: Expr) -> Expr:
        first, second = (_horner(row, eta) for row in _EXPANSION)
        remainder = te_math.exp(-exponent) / tirx.sqrt(_number(2 * math.pi) * a) * (first + second / a)
        argument = eta * tirx.sqrt(a * _number(0.5))
        half = _number(0.5) * libm("erfc")(argument if upper else -argument)
        return half + remainder if upper else half - remainder

    farthest = _number(_FARTHEST)
    return bound(of_distance, tirx.max(tirx.min((x - a) / a, farthest), -farthest))


def _limits(a: Expr, x: Expr, upper: bool) -> Expr:
    """P or Q where a or x is 0, infinite, negative or NaN."""
    zero, infinity, nan = _number(0), _number(_INF), _number(math.nan)
    both_zero = tirx.And(tirx.EQ(a, zero), tirx.EQ(x, zero))
    both_infinite = tirx.And(tirx.EQ(a, infinity), tirx.EQ(x, infinity))
    is_valid = tirx.And(tirx.And(a >= zero, x >= zero), tirx.Not(tirx.Or(both_zero, both_infinite)))
    is_one = tirx.Or(tirx.EQ(a, zero), tirx.EQ(x, infinity))
    return select(is_valid, select(is_one, _number(0 if upper else 1), _number(1 if upper else 0)), nan)


@compute("igamma")
def igamma(x1: Any, x2: Any, *, out: Outs) -> Any:
    a, x = rounded_numbers([x1, x2])
    return incomplete_gammas(a, x, out[0], upper=False)


@compute("igammac")
def igammac(x1: Any, x2: Any, *, out: Outs) -> Any:
    a, x = rounded_numbers([x1, x2])
    return incomplete_gammas(a, x, out[0], upper=True)


elementwise({
    "digamma": of_float64(digamma),
    "lgamma": of_float64(libm("lgamma")),
    "polygamma": of_float64(polygamma),
    "zeta": of_float64(zeta),
})  # fmt: skip
