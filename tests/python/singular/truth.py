"""True values and derivatives, by mpmath: closed forms of the functions, and differences of many digits.

A derivative is known where the differences to both sides agree. Elsewhere (at kinks and poles, and outside of the
domain) there is none, and the judge asks torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mpmath import mp, mpf

Truth = Callable[..., Any]
"""A function of mpf numbers and of the attributes of the call."""

_STEP_BITS = 90
"""Differences have a step of 2**-90 of the distance to the nearest singular point, which bounds their error."""
_AGREE = mpf(2) ** -40


def _softplus(x: Any, beta: float = 1.0, threshold: float | None = None) -> Any:
    z = x * mpf(beta)
    return x if threshold is not None and z > threshold else mp.log1p(mp.exp(z)) / mpf(beta)


def _atan2(a: Any, b: Any) -> Any:
    """Without the jump at negative b, where the derivative is the same on both sides."""
    return mp.atan2(-a, -b) + mp.pi if abs(a) < -b * mpf(0.37) else mp.atan2(a, b)


def _heaviside(a: Any, b: Any) -> Any:
    if a == 0:
        raise ValueError
    return mpf(int(a > 0))


def _hardsigmoid(x: Any) -> Any:
    return min(max(x + 3, mpf(0)), mpf(6)) / 6


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return x * mp.erfc(-x / mp.sqrt(2)) / 2
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mpf(0.044715) * x**3))


def _logit(x: Any, eps: float | None = None) -> Any:
    z = x if eps is None else min(max(x, mpf(eps)), 1 - mpf(eps))
    return mp.log(z / (1 - z))


def _xlogy(log: Callable[[Any], Any]) -> Truth:
    return lambda a, b: a * log(b) if a or b <= (0 if log is mp.log else -1) else mpf(0)


def _sinc(x: Any) -> Any:
    return mp.sin(mp.pi * x) / (mp.pi * x) if x else mpf(1)


def _entr(x: Any) -> Any:
    return -x * mp.log(x) if x else mpf(0)


def _bessel(order: int, scaled: bool) -> Truth:
    return lambda x: mp.besseli(order, x) * (mp.exp(-abs(x)) if scaled else 1)


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return x if x > 0 else mpf(alpha) * mp.expm1(x)


def _celu(x: Any, alpha: float = 1.0) -> Any:
    return x if x > 0 else mpf(alpha) * mp.expm1(x / mpf(alpha))


def _logaddexp(a: Any, b: Any) -> Any:
    return max(a, b) + mp.log1p(mp.exp(-abs(a - b)))


def _logaddexp2(a: Any, b: Any) -> Any:
    return max(a, b) + mp.log1p(mp.mpf(2) ** -abs(a - b)) / mp.log(2)


def _bce_logits(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "none") -> Any:
    scale, extra = (mpf(1) if w is None else w for w in (weight, pos_weight))
    return scale * ((1 - target) * x + (1 + (extra - 1) * target) * _softplus(-x))


def _bce(p: Any, target: Any, weight: Any = None, reduction: str = "none") -> Any:
    """The loss clamps its logarithms at -100, and is compared where it does not."""
    if not 0 < p < 1:
        raise ValueError
    low, high = mp.log(p), mp.log1p(-p)
    if low < -100 or high < -100:
        raise ValueError
    return (mpf(1) if weight is None else weight) * (-target * low - (1 - target) * high)


def _erfcx_integral(n: Any, x: Any) -> Any:
    before, value = 2 / mp.sqrt(mp.pi), mp.exp(x * x) * mp.erfc(x)
    for k in range(1, int(n) + 1):
        before, value = value, (before - 2 * x * value) / (2 * k)
    return value


def _polygamma(n: Any, x: Any) -> Any:
    """mpmath's for positive numbers; below, by reflection: it sums one term for each integer up to x."""
    n = int(n)
    if x > 0:
        return mp.polygamma(n, x)
    if x == mp.floor(x):
        raise ValueError
    cotangent, slope = mp.cospi(x) / mp.sinpi(x), [0, 1]  # the coefficients of the derivative in the cotangent
    for _ in range(n):
        rising = [k * c for k, c in enumerate(slope)][1:]
        slope = [-(a + b) for a, b in zip([*rising, 0, 0], [0, 0, *rising], strict=True)]
    value = mp.polygamma(n, 1 - x)
    return (-1) ** n * value - mp.pi ** (n + 1) * mp.polyval(slope[::-1], cotangent)


def _zeta(s: Any, q: Any) -> Any:
    if q > 0:
        return mp.zeta(s, q)
    if s != int(s) or s < 2:
        raise ValueError
    return (-1) ** int(s) * _polygamma(int(s) - 1, q) / mp.factorial(int(s) - 1)


def _igamma(a: Any, x: Any) -> Any:
    """By a series, for numbers that are not too large for it."""
    if not 0 <= x <= 800:
        raise ValueError
    with mp.extraprec(2500):
        return x**a / mp.gamma(a + 1) * mp.hyp1f1(a, a + 1, -x)


def _igammac(a: Any, x: Any) -> Any:
    with mp.extraprec(2500):
        return 1 - _igamma(a, x)


TRUTHS: dict[str, Truth] = {
    "abs": lambda x: abs(x),
    "acos": mp.acos,
    "acosh": mp.acosh,
    "addcdiv": lambda x, a, b, value=1.0: x + mpf(value) * a / b,
    "addcmul": lambda x, a, b, value=1.0: x + mpf(value) * a * b,
    "asin": mp.asin,
    "asinh": mp.asinh,
    "atan": mp.atan,
    "atan2": _atan2,
    "atanh": mp.atanh,
    "binary_cross_entropy": _bce,
    "binary_cross_entropy_with_logits": _bce_logits,
    "celu": _celu,
    "copysign": lambda a, b: abs(a) * b / abs(b),
    "cos": mp.cos,
    "cosh": mp.cosh,
    "deg2rad": lambda x: x * mp.pi / 180,
    "digamma": mp.digamma,
    "divide": lambda a, b: a / b,
    "elu": _elu,
    "entr": _entr,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "erfcx": lambda x: _erfcx_integral(0, x),
    "erfcx_integral": _erfcx_integral,
    "erfinv": mp.erfinv,
    "exp": mp.exp,
    "exp2": lambda x: mpf(2) ** x,
    "expm1": mp.expm1,
    "gelu": _gelu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "heaviside": _heaviside,
    "hypot": mp.hypot,
    "i0": _bessel(0, False),
    "i0e": _bessel(0, True),
    "i1": _bessel(1, False),
    "i1e": _bessel(1, True),
    "igamma": _igamma,
    "igammac": _igammac,
    "lerp": lambda a, b, w: a + w * (b - a),
    "lgamma": lambda x: mp.loggamma(x) if x > 0 else mp.log(abs(mp.pi / (mp.sinpi(x) * mp.gamma(1 - x)))),
    "log": mp.log,
    "log10": mp.log10,
    "log1p": mp.log1p,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log_ndtr": lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
    "logaddexp": _logaddexp,
    "logaddexp2": _logaddexp2,
    "logit": _logit,
    "logsigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * mp.tanh(_softplus(x)),
    "mod": lambda a, b: a - b * mp.floor(a / b),
    "mse_loss": lambda x, target, reduction: (x - target) ** 2,
    "multiply": lambda a, b: a * b,
    "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "ndtri": lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    "one_minus_square": lambda x: 1 - x * x,
    "polygamma": _polygamma,
    "power": lambda a, b: mp.power(a, b),
    "rad2deg": lambda x: x * 180 / mp.pi,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "selu": lambda x: mpf(1.0507009873554805) * _elu(x, 1.6732632423543772),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "sin": mp.sin,
    "sinc": _sinc,
    "sinh": mp.sinh,
    "softplus": _softplus,
    "softsign": lambda x: x / (1 + abs(x)),
    "sqrt": mp.sqrt,
    "square": lambda x: x * x,
    "subtract": lambda a, b: a - b,
    "add": lambda a, b: a + b,
    "tan": mp.tan,
    "tanh": mp.tanh,
    "tanhshrink": lambda x: x - mp.tanh(x),
    "trunc_mod": lambda a, b: a - b * (mp.floor(a / b) if a * b >= 0 else mp.ceil(a / b)),
    "xlog1py": _xlogy(mp.log1p),
    "xlogy": _xlogy(mp.log),
    "zeta": _zeta,
}
"""The operators whose formula is known here."""


def _erfinv_slope(x: Any) -> Any:
    return mp.sqrt(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2)


def _ndtri(p: Any) -> Any:
    return mp.sqrt(2) * mp.erfinv(2 * p - 1)


def _ndtri_slope(p: Any) -> Any:
    return mp.sqrt(2 * mp.pi) * mp.exp(_ndtri(p) ** 2 / 2)


def _igamma_slope(a: Any, x: Any) -> Any:
    return mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a)) if x > 0 else mp.mpf("nan")


def _igamma_curvature(a: Any, x: Any) -> Any:
    return _igamma_slope(a, x) * ((a - 1) / x - 1)


DERIVATIVES: dict[str, tuple[Truth, Truth]] = {
    "atanh": (lambda x: 1 / (1 - x * x), lambda x: 2 * x / (1 - x * x) ** 2),  # also outside of the domain
    "digamma": (lambda x: _polygamma(1, x), lambda x: _polygamma(2, x)),
    "erfinv": (_erfinv_slope, lambda x: 2 * mp.erfinv(x) * _erfinv_slope(x) ** 2),
    "igamma": (_igamma_slope, _igamma_curvature),
    "igammac": (lambda a, x: -_igamma_slope(a, x), lambda a, x: -_igamma_curvature(a, x)),
    "lgamma": (mp.digamma, lambda x: _polygamma(1, x)),
    "ndtri": (_ndtri_slope, lambda p: _ndtri(p) * _ndtri_slope(p) ** 2),
    "polygamma": (lambda n, x: _polygamma(n + 1, x), lambda n, x: _polygamma(n + 2, x)),
    "zeta": (lambda s, q: -s * _zeta(s + 1, q), lambda s, q: s * (s + 1) * _zeta(s + 2, q)),
}
"""The first and second derivative of functions of one number that take long to compute with many digits."""


class ClosedForms:
    """Derivatives of a function of one number by formulas; None for what is not defined, infinity at even poles."""

    def __init__(self, functions: Sequence[Callable[..., Any]], point: Sequence[float]) -> None:
        self.functions = functions
        self.precision = 300 + abs(_bits(point[0]))
        self.point = point

    def derivative(self, *positions: int) -> Any:
        """By the operands at these positions; the value itself for none."""
        if len(positions) == len(self.functions):
            return None
        function = self.functions[len(positions)]
        value = evaluate(function, self.point, self.precision)
        if value is not None:
            return value
        with mp.workprec(self.precision):
            step = mpf(2) ** -200
            beside = [evaluate(function, [mpf(self.point[0]) + sign * step], self.precision) for sign in (1, -1)]
        if None in beside or min(map(abs, beside)) < mpf(2) ** 100 or beside[0] * beside[1] < 0:
            return None
        return math.copysign(math.inf, beside[0])


def evaluate(function: Callable[..., Any], numbers: Sequence[Any], precision: int) -> Any:
    """A value of the function with that many bits; None where it has no finite real value."""
    with mp.workprec(precision):
        try:
            value = function(*map(mpf, numbers))
        except (ValueError, ZeroDivisionError, OverflowError, ArithmeticError, NotImplementedError):
            return None
        if isinstance(value, mp.mpc):
            value = value.real if value.imag == 0 else None
        return value if value is not None and mp.isfinite(value) else None


def _bits(number: float) -> int:
    """The exponent of a number, 0 for 0."""
    return math.frexp(number)[1] if number else 0


class Differences:
    """Values and derivatives of a function of numbers at one point; None for what is not defined."""

    def __init__(self, function: Callable[..., Any], point: Sequence[float], centres: Sequence[float]) -> None:
        self.function = function
        self.point = point
        near = [abs(a - b) for a in point for b in (*centres, *point, *(-p for p in point)) if a != b]
        scale = min([1.0, *(abs(p) for p in point if p), *(d for d in near if d)])
        exponent = _bits(scale) - 1 - _STEP_BITS
        self.step = mpf(2) ** exponent
        self.precision = 1500 + 2 * (max(_bits(max(1.0, *map(abs, point))), 0) - exponent)
        self._values: dict[tuple[int, ...], Any] = {}

    def at(self, offsets: tuple[int, ...]) -> Any:
        """The function that many steps beside the point; None where it has no finite real value."""
        if offsets not in self._values:
            with mp.workprec(self.precision):
                numbers = [mpf(x) + k * self.step for x, k in zip(self.point, offsets, strict=True)]
            self._values[offsets] = evaluate(self.function, numbers, self.precision)
        return self._values[offsets]

    def derivative(self, *positions: int) -> Any:
        """By the operands at these positions; the value itself for none."""
        return self._both_sides([self._unit(i) for i in positions]) if positions else self.at((0,) * len(self.point))

    def _unit(self, i: int) -> tuple[int, ...]:
        return tuple(int(k == i) for k in range(len(self.point)))

    def _both_sides(self, directions: Sequence[tuple[int, ...]]) -> Any:
        """The mean of the differences to both sides if they agree, or if they approach each other for smaller steps."""
        gap = None
        for _ in range(2):
            sides = [self._difference(directions, sign) for sign in (1, -1)]
            if None in sides:
                return None
            with mp.workprec(self.precision):
                mean, before, gap = sum(sides) / 2, gap, abs(sides[0] - sides[1])
                sizes = [abs(v) for v in self._values.values() if v is not None]
                noise = mpf(2) ** (20 - self.precision) * max(sizes) / self.step ** len(directions)
                if gap <= max(_AGREE * max(map(abs, sides)), noise) or (before is not None and gap < before * _AGREE):
                    return mean if abs(mean) > max(gap * _AGREE, noise) else mpf(0)
            self.step *= mpf(2) ** -60
            self._values.clear()
        return None

    def _difference(self, directions: Sequence[tuple[int, ...]], sign: int) -> Any:
        terms: list[tuple[tuple[int, ...], int]] = [((0,) * len(self.point), 1)]
        for direction in directions:
            shifted = [(tuple(a + sign * b for a, b in zip(at, direction, strict=True)), c) for at, c in terms]
            terms = [*shifted, *((at, -c) for at, c in terms)]
        values = [(self.at(at), c) for at, c in terms]
        if any(value is None for value, _ in values):
            return None
        with mp.workprec(self.precision):
            return sum(value * c for value, c in values) / (sign * self.step) ** len(directions)
