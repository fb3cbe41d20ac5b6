"""Special functions of errors, normal distributions and Bessel, in NumPy: by the standard library and by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from meta.backend.reference.precision import by_element
from meta.op.dialect.reference import elementwise

_NORMAL = NormalDist()


def _erfcx(x: float) -> float:
    """By the asymptotic series 7.1.23 of Abramowitz and Stegun from 12 on."""
    if x < -27:
        return math.inf
    if x < 12:
        return math.exp(x * x) * math.erfc(x)
    total = term = 1.0
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def _erfcx_integral(n: int) -> Callable[[float], float]:
    """By the recurrence 7.2.5 of Abramowitz and Stegun: upwards for small x, downwards from order 200 for others."""

    def run(x: float) -> float:
        before, value = 2 / math.sqrt(math.pi), _erfcx(x)
        if not x >= 1.5:
            for k in range(1, n + 1):
                before, value = value, (before - 2 * x * value) / (2 * k)
            return value
        quotients = [0.0]
        for k in range(200, 0, -1):
            quotients.append(1 / (2 * (k + 1) * quotients[-1] + 2 * x))
        return value * math.prod(quotients[-n:]) if n else value

    return run


def _log_ndtr(x: float) -> float:
    if x > -1:
        return math.log1p(-0.5 * math.erfc(x / math.sqrt(2)))
    if x > -30:  # log1p loses digits there: its argument is close to -1
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    return -math.inf if math.isinf(x) else math.log(_erfcx(-x / math.sqrt(2)) / 2) - x * x / 2


def _ndtri(p: float) -> float:
    if 0 < p < 1:
        return _NORMAL.inv_cdf(p)
    return -math.inf if p == 0 else math.inf if p == 1 else math.nan


def _erfinv(x: float) -> float:
    """From the inverse of the normal distribution, with two steps of Newton's method for small x."""
    size = abs(x)
    if size >= 1:
        return math.copysign(math.inf, x) if size == 1 else math.nan
    if size > 0.5:
        return math.copysign(-_NORMAL.inv_cdf((1 - size) / 2) / math.sqrt(2), x)
    y = x * math.sqrt(math.pi) / 2
    for _ in range(8):
        y -= (math.erf(y) - x) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y


def _bessel_scaled(order: int) -> Callable[[float], float]:
    """exp(-|x|) I(x) by the trapezoidal rule on the mean of exp(x cos t - |x|) cos(n t) for t from 0 to pi, which
    converges geometrically; by the series 9.7.1 from 1000 on."""
    angles = (np.arange(512) + 0.5) * (np.pi / 512)

    def run(x: float) -> float:
        size = abs(x)
        if order == 1 and size < 0.01:  # where the mean cancels
            return x * ((size * size / 384 + 1 / 16) * size * size + 0.5) * math.exp(-size)
        sign = -1.0 if x < 0 and order % 2 else 1.0
        if size < 1000:
            return sign * float(np.mean(np.exp(size * (np.cos(angles) - 1)) * np.cos(order * angles)))
        total, term = 1.0, 1.0
        for k in range(1, 6):
            term *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * k * size)
            total += term
        return sign * total / math.sqrt(2 * math.pi * size)

    return run


def _unscaled(scaled: Callable[[float], float]) -> Callable[[float], float]:
    def run(x: float) -> float:
        half = float(np.exp(min(abs(x), 2000.0) / 2))
        return half * (half * scaled(min(max(x, -2000.0), 2000.0)))

    return run


elementwise({
    "erfcx": by_element(_erfcx),
    "erfcx_integral": lambda x, n: by_element(_erfcx_integral(n))(x),
    "erfinv": by_element(_erfinv),
    "i0": by_element(_unscaled(_bessel_scaled(0))),
    "i0e": by_element(_bessel_scaled(0)),
    "i1": by_element(_unscaled(_bessel_scaled(1))),
    "i1e": by_element(_bessel_scaled(1)),
    "log_ndtr": by_element(_log_ndtr),
    "ndtr": by_element(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))),
    "ndtri": by_element(_ndtri),
})  # fmt: skip
