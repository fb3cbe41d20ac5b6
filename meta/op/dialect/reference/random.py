"""NumPy versions of random operators: the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from meta.backend.reference import philox
from meta.backend.reference.digamma import digamma
from meta.backend.reference.precision import by_element
from meta.dtype import canonical, smallest_normal, to_numpy
from meta.op.dialect.reference import elementwise, plain

Array = Any
Shape = tuple[int, ...]


def uniform(key: Array, shape: Shape, low: float, high: float, dtype: str) -> Array:
    kind = np.float64 if dtype == "float64" else np.float32
    first, last = kind(low), kind(high)
    x = first + philox.uniform01(key, shape, dtype) * (last - first)
    return np.where(x.astype(to_numpy(dtype)).astype(kind) < last, x, first)


def normal(key: Array, shape: Shape, mean: float, std: float, dtype: str) -> Array:
    words = philox.words(key, shape, 4 if dtype == "float64" else 2)
    if dtype == "float64":
        return mean + _gaussian_float64(words) * std
    share = ((words[0] >> np.uint32(1)).astype(np.float32) + np.float32(1)) * np.float32(2.0**-31)
    return mean + _gaussian(share, philox.unit(words[1:], "float32")) * std


def _gaussian_float64(words: list[Array]) -> Array:
    """Standard normal numbers from four words each."""
    return _gaussian(1 - philox.unit(words, "float64"), philox.unit(words[2:], "float64"))


def _gaussian(share: Array, turn: Array) -> Array:
    return np.sqrt(-2 * np.log(share.astype(np.float64))) * np.cos(2 * np.pi * turn.astype(np.float64))


def randint(key: Array, shape: Shape, low: int, high: int, dtype: str) -> Array:
    return philox.integer(key, shape, low, high)


def bernoulli(key: Array, shape: Shape, p: float, dtype: str) -> Array:
    return philox.uniform01(key, shape) < np.float32(p)


def _in_streams(key: Array, parameters: Array, step: Callable[..., tuple[Array, Array]]) -> Array:
    """Numbers by rejection: `step(words, parameters)` gives a number and whether it is accepted for each element that
    has none yet. An attempt takes the next one or two blocks of the element's stream."""
    out = np.empty(parameters.size)
    left = np.arange(parameters.size, dtype=np.uint64)
    attempt = 0
    while left.size:
        numbers, accepted = step(partial(philox.stream_words, key, left), attempt, parameters[left])
        out[left[accepted]] = numbers[accepted]
        left = left[~accepted]
        attempt += 1
    return out


def poisson(key: Array, rate: Array) -> Array:
    flat = rate.astype(np.float64).ravel()
    regular = np.where((flat >= 0) & (flat < np.inf), flat, 0)
    drawn = _in_streams(key, regular, _poisson_attempt)
    return np.where(flat >= 0, np.where(flat < np.inf, drawn, flat), np.nan).reshape(rate.shape)


def _poisson_attempt(words: Callable[[int], list[Array]], attempt: int, rate: Array) -> tuple[Array, Array]:
    """Inversion below 10, where each attempt is accepted; else PTRS of W. Hoermann (1993)."""
    drawn = words(attempt)
    first, v = philox.unit(drawn[:2], "float64"), philox.unit(drawn[2:], "float64")
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    u = first - 0.5
    us = 0.5 - np.abs(u)
    k = np.floor((2 * a / us + b) * u + rate + 0.43)
    bound = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
    possible = (k >= 0) & ~((us < 0.013) & (v > us)) & (bound <= _log_poisson(k, rate))
    accepted = ((us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))) | possible
    small = rate < 10
    return np.where(small, _inverse_poisson(first, np.where(small, rate, 0)), k), accepted | small


def _inverse_poisson(left: Array, rate: Array) -> Array:
    """The first numbers whose cumulative probability exceeds `left`."""
    probability, k = np.exp(-rate), np.zeros(rate.shape)
    more = left >= probability
    while more.any():
        left = np.where(more, left - probability, left)
        k = k + more
        probability = np.where(more, probability * (rate / np.maximum(k, 1)), probability)
        more &= (left >= probability) & (probability > 1e-20)
    return k


def _log_poisson(k: Array, rate: Array) -> Array:
    factorial = np.array([math.factorial(i) for i in range(16)])[np.clip(np.nan_to_num(k), 0, 15).astype(np.int64)]
    n = np.maximum(k, 16)
    d = (rate - n) / n
    tail = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / (n * n)) / (n * n)) / (n * n)) / n
    large = -(n * d) * (d * _excess(d)) - 0.5 * np.log(2 * np.pi * n) - tail
    return np.where(k < 16, k * np.log(rate) - rate - np.log(factorial), large)


def _excess(x: Array) -> Array:
    """(x - log(1 + x)) / x**2."""
    series = np.polynomial.polynomial.polyval(x, [(-1) ** k / (k + 2) for k in range(16)])
    return np.where(np.abs(x) < 0.06, series, (x - np.log1p(x)) / (x * x))


def standard_gamma(key: Array, alpha: Array) -> Array:
    flat, dtype = alpha.astype(np.float64).ravel(), canonical(alpha.dtype)
    regular = np.where((flat >= 0) & (flat < np.inf), flat, 1)
    drawn = np.maximum(_in_streams(key, regular, partial(_gamma_attempt, dtype == "float64")), smallest_normal(dtype))
    return np.where(flat >= 0, np.where(flat < np.inf, drawn, flat), np.nan).reshape(alpha.shape)


def _gamma_attempt(
    is_double: bool, words: Callable[[int], list[Array]], attempt: int, alpha: Array
) -> tuple[Array, Array]:
    """The method of G. Marsaglia and W. Tsang (2000)."""
    if is_double:
        x, second = _gaussian_float64(words(2 * attempt)), words(2 * attempt + 1)
        u, boost = (1 - philox.unit(pair, "float64") for pair in (second[:2], second[2:]))
    else:
        share, turn, u, boost = ((word.astype(np.float64) + 1) * 2.0**-32 for word in words(attempt))
        x = _gaussian(share, turn)
    d = np.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    t = np.maximum(1 / 3 / np.sqrt(d) * x, -1)
    difference = -3 * (t * t * _excess(t)) - t * t * (3 + t)
    accepted = (u < 1 - 0.0331 * x**4) | (np.log(u) <= 0.5 * x * x + d * difference)
    scale = np.where(alpha < 1, np.exp(np.log(boost) / np.abs(alpha)), 1)
    return d * (1 + t) ** 3 * scale, (t > -1) & accepted


def _gamma_slope(a: float, x: float) -> float:
    """By derivatives along the imaginary axis of the series for P and the fraction for Q; of large a by Temme's
    expansion."""
    if not (0 < a < math.inf and 0 <= x < math.inf):
        return math.nan
    if x == 0:
        return 0.0
    if a >= 1e4:
        return _gamma_slope_of_large(a, x)
    complex_a = complex(a, 1e-150)
    if x < a + 1:
        value, term, k = 1 + 0j, 1 + 0j, 0
        while abs(term) > 1e-18 * abs(value) or k < 10:
            k += 1
            term *= x / (complex_a + k)
            value += term
        scale, order = x / a, a + 1
        return scale * (value.real * (digamma(order) - math.log(x)) - value.imag / 1e-150)
    value = 0j
    for k in range(5000, 0, -1):
        value = k * (complex_a - k) / (x + 2 * k + 1 - complex_a + value)
    value = 1 / (x + 1 - complex_a + value)
    return x * (value.real * (math.log(x) - digamma(a)) + value.imag / 1e-150)


def _gamma_slope_of_large(a: float, x: float) -> float:
    m, log = (x - a) / a, math.log(x) - math.log(a)
    if abs(m) < 0.06:
        k = float(np.polynomial.polynomial.polyval(m, [2 * (-1) ** i / (i + 2) for i in range(1, 16)]))
        first = 1 - m * (1 + m * k) / 2
    else:
        k, first = (2 * (m - log) / (m * m) - 1) / m, log / m
    return x / a * (first + (1 + k * (1 + m)) / (2 * a))


plain({
    "bernoulli": bernoulli,
    "normal": normal,
    "poisson": poisson,
    "randint": randint,
    "standard_gamma": standard_gamma,
    "uniform": uniform,
})  # fmt: skip
elementwise({"standard_gamma_grad": by_element(_gamma_slope)})
