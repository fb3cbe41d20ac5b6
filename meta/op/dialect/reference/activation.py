"""Activations, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import floating
from meta.op.dialect.reference import elementwise
from meta.op.dialect.reference.unary import softplus

Array = Any

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def hardsigmoid(x: Array) -> Array:
    return np.clip(x + 3, 0, 6) / 6


def hardtanh(x: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(x, np.asarray(low).astype(x.dtype)), np.asarray(high).astype(x.dtype))


def hardswish_dx(x: Array, dy: Array) -> Array:
    return np.where(x <= -3, 0, np.where(x < 3, dy * (x / 3 + 0.5), dy))


elementwise({
    "hardshrink": lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x),
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda x: x * hardsigmoid(x),
    "hardtanh": hardtanh,
    "hardsigmoid_dx": lambda x, dy: np.where(np.abs(x) < 3, dy / 6, 0),
    "hardswish_dx": hardswish_dx,
    "hardtanh_dx": lambda x, dy, low, high: np.where((x <= low) | (x >= high), 0, dy),
    "logsigmoid": lambda x: -softplus(-x, 1.0),
    "mish": lambda x: x * np.tanh(softplus(x, 1.0)),
    "selu": lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x)),
    "softshrink": lambda x, lambd: np.where(np.abs(x) > lambd, x - np.sign(x) * lambd, x * 0),
    "softsign": lambda x: floating(x) / (1 + np.abs(floating(x))),  # |x| + 1 overflows integers
    "tanhshrink": lambda x: floating(x) - np.tanh(floating(x)),  # NumPy has tanh of int8 in float16
})  # fmt: skip
