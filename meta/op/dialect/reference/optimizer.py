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


def adam(x: Array, dx: Array, m: Array, v: Array, *numbers: Any) -> tuple[Array, ...]:
    return _adam(x, dx, m, v, None, *numbers)


def _adam(
    x: Array, dx: Array, m: Array, v: Array, v_max: Array | None, step: Any, learning_rate: Any, beta1: Any,
    beta2: Any, eps: Any, weight_decay: Any, decoupled: bool,
) -> tuple[Array, ...]:  # fmt: skip
    x, gradient = widen(x), widen(dx)
    if decoupled:
        x = x * (1 - learning_rate * weight_decay)
    else:
        gradient = gradient + weight_decay * x
    mean = (beta1 * widen(m) + (1 - beta1) * gradient).astype(m.dtype)
    square_mean = (beta2 * widen(v) + (1 - beta2) * gradient * gradient).astype(v.dtype)
    states = [mean, square_mean]
    if v_max is not None:
        states.append(np.maximum(widen(v_max), widen(square_mean)).astype(v_max.dtype))
    corrections = (1.0, 1.0) if step is None else (1 - beta1 ** float(step), 1 - beta2 ** float(step))
    root = np.sqrt(widen(states[-1]) / corrections[1])
    return x - learning_rate * (widen(mean) / corrections[0]) / (root + eps), *states


def adagrad(x: Array, dx: Array, total: Array, learning_rate: Any, eps: Any, weight_decay: Any) -> tuple[Array, Array]:
    gradient = widen(dx) + weight_decay * widen(x)
    new_total = (widen(total) + gradient * gradient).astype(total.dtype)
    return widen(x) - learning_rate * gradient / (np.sqrt(widen(new_total)) + eps), new_total


def rmsprop(x: Array, dx: Array, v: Array, velocity: Array, *numbers: Any) -> tuple[Array, ...]:
    return _rmsprop(x, dx, v, velocity, None, *numbers)


def _rmsprop(
    x: Array, dx: Array, v: Array, velocity: Array, m: Array | None, learning_rate: Any, alpha: Any, eps: Any,
    weight_decay: Any, momentum: Any,
) -> tuple[Array, ...]:  # fmt: skip
    gradient = widen(dx) + weight_decay * widen(x)
    square_mean = (alpha * widen(v) + (1 - alpha) * gradient * gradient).astype(v.dtype)
    means = [] if m is None else [(alpha * widen(m) + (1 - alpha) * gradient).astype(m.dtype)]
    variance = widen(square_mean) - sum(widen(mean) ** 2 for mean in means)
    moved = (momentum * widen(velocity) + gradient / (np.sqrt(variance) + eps)).astype(velocity.dtype)
    return widen(x) - learning_rate * widen(moved), square_mean, moved, *means


plain({
    "adagrad": adagrad, "adam": adam, "amsgrad": _adam, "rmsprop": rmsprop, "rmsprop_centered": _rmsprop, "sgd": sgd,
})  # fmt: skip
