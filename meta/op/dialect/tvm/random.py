"""TE computes of random operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te import philox
from meta.backend.tvm.te.elementwise import Operand, accumulation_dtype, cast, const, element, select
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import nest
from meta.dtype import smallest_normal
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

_WIDE: Final = "float64"


def _f64(value: float) -> Expr:
    return tirx.const(value, _WIDE)


def _generate(key: Any, out: TensorSpec, count: int, value: Callable[[tuple[Expr, ...]], Expr], name: str) -> Any:
    """A tensor like `out` of `value(random words)` per element. count: the words of an element."""

    def element_at(*i: Expr) -> Expr:
        return cast(value(philox.words(key, philox.position(i, out.shape), count)), out.dtype)

    return te.compute(out.shape, element_at, name)


@compute("uniform", sizes=("shape",), lift=("low", "high"))
def uniform(key: Any, shape: Any, low: Operand, high: Operand, dtype: str, *, out: Outs) -> Any:
    value_dtype = accumulation_dtype(dtype)
    lower, upper = element(low, (), value_dtype), element(high, (), value_dtype)

    def value(block: tuple[Expr, ...]) -> Expr:
        # Rounding can reach the upper bound, which is excluded.
        x = lower + philox.unit(block, dtype).astype(value_dtype) * (upper - lower)
        return select(cast(cast(x, dtype), value_dtype) < upper, x, lower)

    return _generate(key, out[0], 2 if dtype == "float64" else 1, value, "uniform")


@compute("normal", sizes=("shape",), lift=("mean", "std"))
def normal(key: Any, shape: Any, mean: Operand, std: Operand, dtype: str, *, out: Outs) -> Any:
    value_dtype = accumulation_dtype(dtype)
    centre, scale = element(mean, (), value_dtype), element(std, (), value_dtype)
    gaussian, count = (_gaussian_float64, 4) if value_dtype == "float64" else (_gaussian_float32, 2)
    return _generate(key, out[0], count, lambda block: centre + gaussian(block) * scale, "normal")


def _gaussian_float32(block: tuple[Expr, ...]) -> Expr:
    """A standard normal number: 31 bits, offset to exclude 0, give the radius and 24 bits the angle."""
    bits = (block[0] >> tirx.const(1, "uint32")).astype("int32").astype("float32")
    fraction = (bits + const(bits, 1)) * const(bits, 2.0**-31)
    turn = philox.unit(block[1:], "float32")
    return tirx.sqrt(const(bits, -2) * te_math.log(fraction)) * _cosine_of_turn(turn)


def _gaussian_float64(block: tuple[Expr, ...]) -> Expr:
    fraction = _f64(1) - philox.unit(block[:2], _WIDE)
    return tirx.sqrt(_f64(-2) * te_math.log(fraction)) * _cosine_float64(philox.unit(block[2:], _WIDE))


def _cosine_of_turn(turn: Expr) -> Expr:
    """cos(2 pi turn) of a float32 in [0, 1): sin(2 pi v), v = |turn - 1/2| - 1/4, which vectorises."""
    return te_math.sine_of_turn(tirx.abs(turn - const(turn, 0.5)) - const(turn, 0.25))


def _cosine_float64(turn: Expr) -> Expr:
    """cos(2 pi turn) of a float64 in [0, 1]: the series of sin(2 pi v), v = |turn - 1/2| - 1/4."""
    angle = (tirx.abs(turn - _f64(0.5)) - _f64(0.25)) * _f64(2 * math.pi)
    square, series = angle * angle, _f64(0)
    for k in reversed(range(12)):
        series = _f64((-1.0) ** k / math.factorial(2 * k + 1)) + square * series
    return angle * series


@compute("randint", sizes=("shape",), lift=("low", "high"))
def randint(key: Any, shape: Any, low: Operand, high: Operand, dtype: str, *, out: Outs) -> Any:
    lower, upper = element(low, (), "int64"), element(high, (), "int64")
    return _generate(key, out[0], 2, lambda block: philox.integer(block, lower, upper), "randint")


@compute("bernoulli", sizes=("shape",), lift=("p",))
def bernoulli(key: Any, shape: Any, p: Operand, dtype: str, *, out: Outs) -> Any:
    probability = element(p, (), "float32")
    return _generate(key, out[0], 1, lambda block: philox.bernoulli(block, probability), "bernoulli")


# --- numbers that take a varying number of random words, by loops over each element

_NEAR: Final = 0.06
"""The distance from 0 up to which x - log(1 + x) is computed by its series."""
_MOST_TERMS: Final = 100_000.0


def _loops(operands: list[Any], out: TensorSpec, value: Callable[..., Expr], name: str) -> Any:
    """A tensor like `out` of `value(index, *buffers)`, float64, which also writes the loops of an element."""
    shape = out.shape

    def element_of(index: tuple[Any, ...], buffers: list[Any]) -> None:
        buffers[-1][index or 0] = value(index, *buffers[:-1])

    drawn = te.extern([shape], operands, nest(shape, element_of), dtype=_WIDE, name=name)
    return te.compute(shape, lambda *i: cast(drawn(*i), out.dtype), name)


def _wide(x: Operand, shape: Any) -> Any:
    """An operand broadcast to a shape, in float64."""
    return te.compute(shape, lambda *i: element(x, i, _WIDE), "wide")


def _draw(
    key: Any, x: Operand, out: TensorSpec, value: Callable[[Expr, Callable[[Expr], Any]], Expr], name: str
) -> Any:
    """Numbers of the distributions with parameters `x`: `value(parameter, words)`, where words(n) are the four words
    of block n in the element's own stream."""

    def of_element(index: tuple[Any, ...], key: Any, parameters: Any) -> Expr:
        place = philox.position(index, out.shape)
        return value(parameters[index or 0], lambda n: philox.stream_words(lambda i: key[i], place, n))

    return _loops([key, _wide(x, out.shape)], out, of_element, name)


@compute("poisson")
def poisson(key: Any, rate: Any, *, out: Outs) -> Any:
    inverted = 10.0  # The rate below which Poisson numbers are found by inversion.

    def value(rate: Expr, words: Callable[[Expr], Any]) -> Expr:
        number = registers(1, _WIDE)
        with script_tirx.If(tirx.And(rate >= _f64(0), rate < _f64(inverted))):
            with script_tirx.Then():
                _invert_poisson(number, rate, words)
            with script_tirx.Else(), script_tirx.If(tirx.And(rate >= _f64(inverted), rate < _f64(math.inf))):
                with script_tirx.Then():
                    _reject_poisson(number, rate, words)
                with script_tirx.Else():
                    number[0] = select(rate > _f64(0), rate, _f64(math.nan))
        return number[0]

    return _draw(key, rate, out[0], value, "poisson")


def _invert_poisson(number: Any, rate: Expr, words: Callable[[Expr], Any]) -> None:
    """The first number whose cumulative probability exceeds a uniform number."""
    left, probability = (registers(1, _WIDE) for _ in range(2))
    left[0] = philox.unit(words(tirx.const(0, "int64"))[:2], _WIDE)
    probability[0] = te_math.exp(-rate)
    number[0] = _f64(0)
    # The probabilities add up to 1 but for rounding: from the second bound on, all numbers are as good as the last.
    with script_tirx.While(tirx.And(left[0] >= probability[0], probability[0] > _f64(1e-20))):
        left[0] = left[0] - probability[0]
        number[0] = number[0] + _f64(1)
        probability[0] = probability[0] * (rate / number[0])


def _reject_poisson(number: Any, rate: Expr, words: Callable[[Expr], Any]) -> None:
    """PTRS of W. Hoermann (1993), with its names. The logarithm of a probability is written with log(1 + d) - d, which
    loses no digits where rates are large."""
    a, b, u, us, v, logs = (registers(1, _WIDE) for _ in range(6))
    block, rejected = (registers(1, "int64") for _ in range(2))
    b[0] = _f64(0.931) + _f64(2.53) * tirx.sqrt(rate)
    a[0] = _f64(-0.059) + _f64(0.02483) * b[0]
    block[0], rejected[0] = tirx.const(0, "int64"), tirx.const(1, "int64")
    with script_tirx.While(tirx.NE(rejected[0], tirx.const(0, "int64"))):
        drawn = words(block[0])
        u[0] = philox.unit(drawn[:2], _WIDE) - _f64(0.5)
        v[0] = philox.unit(drawn[2:], _WIDE)
        us[0] = _f64(0.5) - tirx.abs(u[0])
        number[0] = tirx.floor((_f64(2) * a[0] / us[0] + b[0]) * u[0] + rate + _f64(0.43))
        block[0] = block[0] + tirx.const(1, "int64")
        squeezed = tirx.And(us[0] >= _f64(0.07), v[0] <= _f64(0.9277) - _f64(3.6224) / (b[0] - _f64(2)))
        impossible = tirx.Or(tirx.Not(number[0] >= _f64(0)), tirx.And(us[0] < _f64(0.013), v[0] > us[0]))
        with script_tirx.If(squeezed):
            with script_tirx.Then():
                rejected[0] = tirx.const(0, "int64")
            with script_tirx.Else(), script_tirx.If(tirx.Not(impossible)), script_tirx.Then():
                inverse_alpha = _f64(1.1239) + _f64(1.1328) / (b[0] - _f64(3.4))
                logs[0] = te_math.log(v[0] * inverse_alpha / (a[0] / (us[0] * us[0]) + b[0]))
                rejected[0] = (logs[0] > _log_poisson(number[0], rate)).astype("int64")


def _log_poisson(k: Expr, rate: Expr) -> Expr:
    """The logarithm of the probability of k: from 16 on by Stirling's series for k!."""
    factorial = _f64(1)
    for i in range(2, 16):
        factorial = factorial * select(k >= _f64(i), _f64(i), _f64(1))
    small = k * te_math.log(rate) - rate - te_math.log(factorial)
    n = tirx.max(k, _f64(16))
    distance, square = (rate - n) / n, n * n
    tail = (_f64(1 / 12) - (_f64(1 / 360) - (_f64(1 / 1260) - _f64(1 / 1680) / square) / square) / square) / n
    large = -(n * distance) * (distance * _excess(distance)) - _f64(0.5) * te_math.log(_f64(2 * math.pi) * n) - tail
    return select(k < _f64(16), small, large)


def _excess(x: Expr) -> Expr:
    """(x - log(1 + x)) / x**2."""
    series = _f64(1 / 17)
    for k in reversed(range(15)):
        series = _f64(1 / (k + 2)) - x * series
    return select(tirx.abs(x) < _f64(_NEAR), series, (x - te_math.log1p(x)) / (x * x))


@compute("standard_gamma")
def standard_gamma(key: Any, alpha: Any, *, out: Outs) -> Any:
    draw = _gamma_words_float64 if out[0].dtype == "float64" else _gamma_words_float32
    smallest = _f64(smallest_normal(out[0].dtype))

    def value(alpha: Expr, words: Callable[[Expr], Any]) -> Expr:
        number = registers(1, _WIDE)
        with script_tirx.If(tirx.And(alpha >= _f64(0), alpha < _f64(math.inf))):
            with script_tirx.Then():
                _reject_gamma(number, alpha, lambda n: draw(words, n))
                number[0] = tirx.max(number[0], smallest)
            with script_tirx.Else():
                number[0] = select(alpha > _f64(0), alpha, _f64(math.nan))
        return number[0]

    return _draw(key, alpha, out[0], value, "standard_gamma")


def _gamma_words_float32(words: Callable[[Expr], Any], attempt: Expr) -> Any:
    """A normal number and two uniform ones in (0, 1] from one block. They are computed in float64, since another
    rounding could accept another attempt."""
    fraction, turn, *rest = (_positive(word) for word in words(attempt))
    return tirx.sqrt(_f64(-2) * te_math.log(fraction)) * _cosine_float64(turn), *rest


def _gamma_words_float64(words: Callable[[Expr], Any], attempt: Expr) -> Any:
    """The same with all digits of float64, from two blocks."""
    one = tirx.const(1, "int64")
    first, second = words(attempt << one), words((attempt << one) + one)
    return _gaussian_float64(first), *(_f64(1) - philox.unit(pair, _WIDE) for pair in (second[:2], second[2:]))


def _positive(word: Expr) -> Expr:
    """A multiple of 2**-32 in (0, 1]."""
    return (word.astype("int64").astype(_WIDE) + _f64(1)) * _f64(2.0**-32)


def _reject_gamma(number: Any, alpha: Expr, draw: Callable[[Expr], tuple[Expr, Expr, Expr]]) -> None:
    """The method of G. Marsaglia and W. Tsang (2000), with its names; below alpha = 1 by a number of alpha + 1."""
    c, d, t, u, x = (registers(1, _WIDE) for _ in range(5))
    attempt, rejected = (registers(1, "int64") for _ in range(2))
    zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
    d[0] = select(alpha < _f64(1), alpha + _f64(1), alpha) - _f64(1 / 3)
    c[0] = _f64(1 / 3) / tirx.sqrt(d[0])
    attempt[0], rejected[0] = zero, one
    with script_tirx.While(tirx.NE(rejected[0], zero)):
        x[0], u[0], number[0] = draw(attempt[0])
        attempt[0] = attempt[0] + one
        t[0] = tirx.max(c[0] * x[0], _f64(-1))
        square = x[0] * x[0]
        with script_tirx.If(tirx.And(t[0] > _f64(-1), u[0] < _f64(1) - _f64(0.0331) * square * square)):
            with script_tirx.Then():
                rejected[0] = zero
            with script_tirx.Else(), script_tirx.If(t[0] > _f64(-1)), script_tirx.Then():
                # 1 - v + log(v) for v = (1 + t)**3
                difference = _f64(-3) * (t[0] * t[0] * _excess(t[0])) - t[0] * t[0] * (_f64(3) + t[0])
                rejected[0] = (te_math.log(u[0]) > _f64(0.5) * square + d[0] * difference).astype("int64")
    root = _f64(1) + t[0]
    x[0] = d[0] * (root * root * root)
    with script_tirx.If(alpha < _f64(1)):
        with script_tirx.Then():
            number[0] = x[0] * te_math.exp(te_math.log(number[0]) / tirx.abs(alpha))
        with script_tirx.Else():
            number[0] = x[0]


@compute("standard_gamma_grad")
def standard_gamma_grad(alpha: Operand, sample: Operand, *, out: Outs) -> Any:
    """By derivatives of the series 6.5.29 and of the fraction 6.5.31 of the "Handbook of Mathematical Functions" (1964)
    for the incomplete gamma functions; of large shape parameters by an asymptotic expansion."""
    is_double = out[0].dtype == "float64"
    large, tolerance = (1e4, 1e-16) if is_double else (1e3, 1e-9)

    def value(index: tuple[Any, ...], alphas: Any, samples: Any) -> Expr:
        a, x = alphas[index or 0], samples[index or 0]
        slope, digamma = registers(1, _WIDE), registers(1, _WIDE)
        is_regular = tirx.And(tirx.And(a > _f64(0), a < _f64(math.inf)), tirx.And(x > _f64(0), x < _f64(math.inf)))
        with script_tirx.If(tirx.And(is_regular, a < _f64(large))):
            with script_tirx.Then():
                _digamma(digamma, a + _f64(1))
                with script_tirx.If(x < a + _f64(1)):
                    with script_tirx.Then():
                        _slope_by_series(slope, a, x, digamma[0], tolerance)
                    with script_tirx.Else():
                        _slope_by_fraction(slope, a, x, digamma[0] - _f64(1) / a, tolerance)
            with script_tirx.Else():
                is_zero = tirx.And(tirx.EQ(x, _f64(0)), tirx.And(a > _f64(0), a < _f64(math.inf)))
                limit = select(is_zero, _f64(0), _f64(math.nan))
                slope[0] = select(is_regular, _slope_of_large(a, x), limit)
        return slope[0]

    return _loops([_wide(alpha, out[0].shape), _wide(sample, out[0].shape)], out[0], value, "standard_gamma_grad")


def _digamma(value: Any, x: Expr) -> None:
    """value[0] = digamma(x) of x > 1, by the recurrence 6.3.5 up to 9 and the series 6.3.18."""
    z, product, derivative = (registers(1, _WIDE) for _ in range(3))
    z[0], product[0], derivative[0] = x, _f64(1), _f64(0)
    # The sum of 1 / z over all z is the derivative of their product divided by it.
    with script_tirx.While(z[0] < _f64(9)):
        derivative[0] = derivative[0] * z[0] + product[0]
        product[0] = product[0] * z[0]
        z[0] = z[0] + _f64(1)
    inverse = _f64(1) / z[0]
    square = inverse * inverse
    tail = _f64(0)
    for coefficient in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        tail = (tail + _f64(coefficient)) * square
    value[0] = te_math.log(z[0]) - _f64(0.5) * inverse - tail - derivative[0] / product[0]


def _slope_by_series(slope: Any, a: Expr, x: Expr, digamma: Expr, tolerance: float) -> None:
    """The terms of the series for P times (digamma(a + 1) - log(x)), and their derivatives; digamma: of a + 1."""
    factor, term, inverse, n = (registers(1, _WIDE) for _ in range(4))
    factor[0] = digamma - te_math.log(x)
    slope[0], term[0], n[0] = factor[0], _f64(1), _f64(0)
    counts = term[0] * tirx.max(factor[0], _f64(1)) > slope[0] * _f64(tolerance)
    with script_tirx.While(tirx.And(counts, n[0] < _f64(_MOST_TERMS))):
        n[0] = n[0] + _f64(1)
        inverse[0] = _f64(1) / (a + n[0])
        term[0] = term[0] * (x * inverse[0])
        factor[0] = factor[0] + inverse[0]
        slope[0] = slope[0] + term[0] * factor[0]
    slope[0] = slope[0] * (x / a)


def _slope_by_fraction(slope: Any, a: Expr, x: Expr, digamma: Expr, tolerance: float) -> None:
    """The fraction for Q by the method of W. Lentz (1976), c / d of whose steps are its factors, and the derivatives of
    c, d and of the fraction's logarithm; digamma: of a."""
    fraction, logarithm, b, c, d, dc, dd, step, change, n = (registers(1, _WIDE) for _ in range(10))
    one = _f64(1)
    b[0] = x + one - a
    c[0], dc[0] = _f64(0), _f64(0)  # the reciprocal of c, and the derivative of c
    d[0] = one / b[0]
    dd[0] = d[0] * d[0]
    fraction[0], logarithm[0] = d[0], d[0]
    step[0], change[0], n[0] = _f64(2), one, _f64(0)
    is_far = tirx.Or(tirx.abs(step[0] - one) > _f64(4 * tolerance), tirx.abs(change[0]) > _f64(10 * tolerance))
    with script_tirx.While(tirx.And(is_far, n[0] < _f64(_MOST_TERMS))):
        n[0] = n[0] + one
        b[0] = b[0] + _f64(2)
        numerator = n[0] * (a - n[0])
        dd[0] = numerator * dd[0] + n[0] * d[0] - one
        change[0] = numerator * d[0] + b[0]
        d[0] = one / change[0]
        dd[0] = -(dd[0] * d[0] * d[0])
        dc[0] = (n[0] - numerator * dc[0] * c[0]) * c[0] - one
        step[0] = b[0] + numerator * c[0]
        c[0] = one / step[0]
        change[0] = dc[0] * c[0] + dd[0] * change[0]
        step[0] = step[0] * d[0]
        fraction[0] = fraction[0] * step[0]
        logarithm[0] = logarithm[0] + change[0]
    slope[0] = x * fraction[0] * (te_math.log(x) - digamma + logarithm[0])


def _slope_of_large(a: Expr, x: Expr) -> Expr:
    """The derivative at a fixed quantile of N. M. Temme's expansion ("Asymptotic Inversion of Incomplete Gamma
    Functions", 1992) without the terms that a**2 divides."""
    m, one = (x - a) / a, _f64(1)
    log = te_math.log(x) - te_math.log(a)
    is_near = tirx.abs(m) < _f64(_NEAR)
    slope = _f64(0)
    for k in reversed(range(1, 16)):
        slope = _f64(2 * (-1.0) ** k / (k + 2)) + m * slope
    # 2 (m - log(1 + m)) / m**2 is 1 + m slope
    slope = select(is_near, slope, (_f64(2) * (m - log) / (m * m) - one) / m)
    first = select(is_near, one - m * (one + m * slope) * _f64(0.5), log / m)
    return x / a * (first + (one + slope * (one + m)) / (_f64(2) * a))
