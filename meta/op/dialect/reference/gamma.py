"""The gamma function's relatives, in NumPy: by the standard library and by series."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from meta.backend.reference.digamma import BERNOULLI, digamma
from meta.backend.reference.precision import by_element
from meta.op.dialect.reference import elementwise


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == np.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:  # from 2.6e305 on
        return math.inf


def _zeta(s: float, q: float) -> float:
    """By the formula of Euler and Maclaurin after 20 terms."""
    if s == 1 or (s > 1 and q <= 0 and q == np.floor(q)):
        return math.inf
    if q < 0 and s > 1 and s == np.floor(s):  # the sum over all integers k, less the terms below q
        d = q - np.rint(q)
        return float(np.power(d, -s)) + _zeta(s, 1 + d) + (-1) ** int(s % 2) * (_zeta(s, 1 - d) - _zeta(s, 1 - q))
    if s < 1 or q <= 0:
        return math.nan
    w = q + 20
    total = sum(float(np.power(q + k, -s)) for k in range(20))
    integral = float(np.power(w, 1 - s))  # times s - 1; w**-s is 0 for the largest q
    last, order = integral / w, min(s, 1000.0)  # of larger orders the series is 0, not infinity times 0
    total += integral / (s - 1) + last / 2
    factor = order * last / w
    for j, number in enumerate(BERNOULLI):
        total += factor * number / math.factorial(2 * j + 2)
        factor *= (order + 2 * j + 1) * (order + 2 * j + 2) / w / w
    return total


def _polygamma(n: int) -> Callable[[float], float]:
    """From 20 on by zeta; below by the recurrence 6.4.6."""
    if n == 0:
        return digamma
    scale = (-1.0) ** (n + 1) * math.factorial(n)

    def run(x: float) -> float:
        if x <= 0 and x == np.floor(x):
            return math.copysign(math.inf, scale) if x > -math.inf else math.nan
        total = 0.0
        while x < 1:
            total += float(np.power(x, -(n + 1)))
            x += 1
        return scale * (total + _zeta(n + 1, x))

    return run


_LARGE = 1e5
"""The first parameter from which on the series loses digits and takes too many terms."""


def _upper_of_large(a: float, x: float) -> float:
    """Q(a, x) of large a by N. M. Temme's expansion (DLMF 8.12.4), with the first term of its remainder."""
    d = (x - a) / a
    if abs(d) > 0.1:
        return float(d < 0)
    half_square = d - math.log1p(d) if abs(d) > 1e-3 else d * d * (1 / 2 - d * (1 / 3 - d * (1 / 4 - d / 5)))
    eta = math.copysign(math.sqrt(2 * half_square), d)
    first = -1 / 3 + eta * (1 / 12 - eta * (2 / 135 - eta * (1 / 864 + eta * (1 / 2835 - eta * 139 / 777600))))
    remainder = math.exp(-a * half_square) / math.sqrt(2 * math.pi * a) * (first - 1 / (540 * a))
    return 0.5 * math.erfc(eta * math.sqrt(a / 2)) + remainder


def _igamma(a: float, x: float) -> float:
    """P(a, x) by its series, which converges everywhere."""
    if a < 0 or x < 0 or (a == x and a in (0, math.inf)):
        return math.nan
    if a == 0 or x == math.inf:
        return 1.0
    if x == 0 or a == math.inf:
        return 0.0
    if a >= _LARGE:
        return 1.0 - _upper_of_large(a, x)
    if x > a + 200 + 20 * math.sqrt(a):
        return 1.0
    total = term = 1.0
    k = a
    while term > total * 1e-17:
        k += 1
        term *= x / k
        total += term
    return min(total * math.exp(a * math.log(x) - x - math.lgamma(a + 1)), 1.0)


def _igammac(a: float, x: float) -> float:
    """1 - P, and Q by its continued fraction from a + 1 on, evaluated from its 2000th step."""
    if _LARGE <= a < math.inf and 0 < x < math.inf:
        return _upper_of_large(a, x)
    if not (0 < a < x - 1 < math.inf):
        return 1.0 - _igamma(a, x)
    value = 0.0
    for k in range(2000, 0, -1):
        value = k * (a - k) / (x + 2 * k + 1 - a + value)
    return math.exp(a * math.log(x) - x - math.lgamma(a)) / (x + 1 - a + value)


elementwise({
    "digamma": by_element(digamma),
    "igamma": by_element(_igamma),
    "igammac": by_element(_igammac),
    "lgamma": by_element(_lgamma),
    "polygamma": lambda x, n: by_element(_polygamma(n))(x),
    "zeta": lambda s, q: np.where(s == 1, np.inf, by_element(_zeta)(s, q)),  # also where q is NaN
})  # fmt: skip
