"""Optimiser steps in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference._elementwise import plain, wide

Array = Any


def sgd(
    x: Array, dx: Array, v: Array, learning_rate: Any, momentum: float, weight_decay: float, nesterov: bool
) -> tuple[Array, Array]:
    x, dx = wide(x), wide(dx)
    gradient = dx + weight_decay * x
    velocity = (momentum * wide(v) + gradient).astype(v.dtype)
    step = gradient + momentum * wide(velocity) if nesterov else wide(velocity)
    return x - learning_rate * step, velocity


def adam(
    x: Array, dx: Array, m: Array, v: Array, step: Any, learning_rate: Any, beta1: float, beta2: float, eps: float,
    weight_decay: float, decoupled: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    x, gradient = wide(x), wide(dx)
    if decoupled:
        x = x * (1 - learning_rate * weight_decay)
    else:
        gradient = gradient + weight_decay * x
    mean = (beta1 * wide(m) + (1 - beta1) * gradient).astype(m.dtype)
    square_mean = (beta2 * wide(v) + (1 - beta2) * gradient * gradient).astype(v.dtype)
    root = np.sqrt(wide(square_mean) / (1 - beta2 ** float(step)))
    return x - learning_rate * (wide(mean) / (1 - beta1 ** float(step))) / (root + eps), mean, square_mean


plain({"adam": adam, "sgd": sgd})
