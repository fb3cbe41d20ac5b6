"""Activations and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import meta
from meta.op.decompose._support import floating, in_dtype
from meta.op.decomposition import decompose, decomposition

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

_forward: Mapping[str, Callable[[Any], Any]] = {
    "hardsigmoid": lambda x: meta.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * (meta.clip(x + 3, 0, 6) / 6),
    "logsigmoid": lambda x: -meta.softplus(-x),
    "mish": lambda x: x * meta.tanh(meta.softplus(x)),
    "selu": lambda x: meta.elu(x, _SELU_ALPHA) * _SELU_SCALE,
}
_gradients: Mapping[str, Callable[[Any, Any], Any]] = {
    "hardsigmoid_dx": lambda x, dy: meta.where(meta.abs(x) < 3, dy / 6, 0),
    "hardswish_dx": lambda x, dy: meta.where(x <= -3, 0, meta.where(x >= 3, dy, dy * (x / 3 + 0.5))),
}
_shrinkages: Mapping[str, Callable[[Any, float], Any]] = {
    "hardshrink": lambda x, lambd: meta.where(meta.abs(x) <= lambd, 0, x),
    "softshrink": lambda x, lambd: meta.where(meta.abs(x) > lambd, x - meta.sign(x) * lambd, x * 0),
}
decompose(_forward)
decompose(_gradients)
decompose(_shrinkages)


@decomposition("softsign")
def softsign(x: Any) -> Any:
    (x,) = floating(x)  # |x| + 1 overflows integers
    return x / (meta.abs(x) + 1)


@decomposition("tanhshrink")
def tanhshrink(x: Any) -> Any:
    (x,) = floating(x)
    return x - meta.tanh(x)


@decomposition("hardtanh")
def hardtanh(x: Any, low: float, high: float) -> Any:
    return meta.clip(x, *in_dtype(x, low, high))


@decomposition("hardtanh_dx")
def hardtanh_dx(x: Any, dy: Any, low: float, high: float) -> Any:
    return meta.where(meta.logical_and(x > low, x < high), dy, 0)
