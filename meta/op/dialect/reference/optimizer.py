"""NumPy versions of optimiser steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference._elementwise import plain, wide

Array = Any


def sgd(
    x: Array, dx: Array, v: Array, learning_rate: Any, momentum: float, weight_decay: float, nesterov: bool
) -> tuple[Array, Array]:
    x, dx = wide(x), wide(dx)
    slope = dx + weight_decay * x
    kept = (momentum * wide(v) + slope).astype(v.dtype)
    step = slope + momentum * wide(kept) if nesterov else wide(kept)
    return x - learning_rate * step, kept


def adam(
    x: Array, dx: Array, m: Array, v: Array, step: Any, learning_rate: Any, beta1: float, beta2: float, eps: float,
    weight_decay: float, decoupled: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    x, slope = wide(x), wide(dx)
    if decoupled:
        x = x * (1 - learning_rate * weight_decay)
    else:
        slope = slope + weight_decay * x
    first = (beta1 * wide(m) + (1 - beta1) * slope).astype(m.dtype)
    second = (beta2 * wide(v) + (1 - beta2) * slope * slope).astype(v.dtype)
    root = np.sqrt(wide(second) / (1 - beta2 ** float(step)))
    return x - learning_rate * (wide(first) / (1 - beta1 ** float(step))) / (root + eps), first, second


plain({"adam": adam, "sgd": sgd})
