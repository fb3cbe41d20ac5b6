"""Activations and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import meta
from meta.op.decompose._support import clamped, floating, in_dtype
from meta.op.decomposition import decompose, decomposition

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

_forward: Mapping[str, Callable[[Any], Any]] = {
    "hardsigmoid": lambda x: meta.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * (meta.clip(x + 3, 0, 6) / 6),
    "logsigmoid": lambda x: -meta.softplus(-x),
    "selu": lambda x: meta.elu(x, _SELU_ALPHA) * _SELU_SCALE,
}
_gradients: Mapping[str, Callable[[Any, Any], Any]] = {
    "hardsigmoid_dx": lambda x, dy: meta.where(meta.abs(x) < 3, dy / 6, 0),
    "hardswish_dx": lambda x, dy: meta.where(x <= -3, 0, meta.where(x >= 3, dy, dy * (x / 3 + 0.5))),
}
_shrinkage: Mapping[str, Callable[[Any, float], Any]] = {
    "softshrink": lambda x, lambd: meta.where(meta.abs(x) > lambd, x - meta.sign(x) * lambd, x * 0),
}
_by_bound: Mapping[str, Callable[[Any, float], Any]] = {
    "hardshrink": lambda x, lambd: meta.where(meta.abs(x) <= lambd, 0, x),
}
decompose(_forward)
decompose(_gradients)
decompose(_shrinkage)
decompose(_by_bound, bounds=True)


@decomposition("softsign")
def softsign(x: Any) -> Any:
    (x,) = floating(x)  # |x| + 1 overflows integers
    return x / (meta.abs(x) + 1)


@decomposition("mish")
def mish(x: Any) -> Any:
    """x n / (n + 2) with n = e**x (e**x + 2), since tanh(log(1 + e**x)) = ((1 + e**x)**2 - 1) / ((1 + e**x)**2 + 1).

    From 20 on, the factor is 1 in every dtype."""
    e = meta.exp(meta.clip(x, -1e4, 20.0))
    n = e * (e + 2.0)
    return meta.where(x > 20, x, x * (n / (n + 2.0)))


_TANH_TAIL = (1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925, -21844 / 6081075)
"""The series of (x - tanh(x)) / x**3 in x**2."""


@decomposition("tanhshrink")
def tanhshrink(x: Any) -> Any:
    """Near 0, where the difference cancels, by the series."""
    (x,) = floating(x)
    square = x * x
    series: Any = _TANH_TAIL[-1]
    for coefficient in reversed(_TANH_TAIL[:-1]):
        series = square * series + coefficient
    return meta.where(meta.abs(x) < 0.05, series * square * x, x - meta.tanh(x))


@decomposition("hardtanh")
def hardtanh(x: Any, low: float, high: float) -> Any:
    return clamped(x, *in_dtype(x, low, high))


@decomposition("hardtanh_dx")
def hardtanh_dx(x: Any, dy: Any, low: float, high: float) -> Any:
    return meta.where(meta.logical_and(x > low, x < high), dy, 0)
