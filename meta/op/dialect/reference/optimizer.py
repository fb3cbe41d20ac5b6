"""Optimiser steps in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain

Array = Any


def sgd(
    x: Array, dx: Array, v: Array, learning_rate: Any, momentum: float, weight_decay: float, nesterov: bool
) -> tuple[Array, Array]:
    x, dx = widen(x), widen(dx)
    gradient = dx + weight_decay * x
    velocity = (momentum * widen(v) + gradient).astype(v.dtype)
    step = gradient + momentum * widen(velocity) if nesterov else widen(velocity)
    return x - learning_rate * step, velocity


def adam(
    x: Array, dx: Array, m: Array, v: Array, step: Any, learning_rate: Any, beta1: Any, beta2: Any, eps: Any,
    weight_decay: Any, decoupled: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    x, gradient = widen(x), widen(dx)
    if decoupled:
        x = x * (1 - learning_rate * weight_decay)
    else:
        gradient = gradient + weight_decay * x
    mean = (beta1 * widen(m) + (1 - beta1) * gradient).astype(m.dtype)
    square_mean = (beta2 * widen(v) + (1 - beta2) * gradient * gradient).astype(v.dtype)
    corrections = (1.0, 1.0) if step is None else (1 - beta1 ** float(step), 1 - beta2 ** float(step))
    root = np.sqrt(widen(square_mean) / corrections[1])
    return x - learning_rate * (widen(mean) / corrections[0]) / (root + eps), mean, square_mean


plain({"adam": adam, "sgd": sgd})
