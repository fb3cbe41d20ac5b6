"""Samples of optimiser steps."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def sgd(
    x: Any, dx: Any, v: Any, learning_rate: Any, momentum: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    slope = dx + weight_decay * x
    v = momentum * v + slope
    return x - learning_rate * (slope + momentum * v if nesterov else v), v


def adam(
    x: Any, dx: Any, m: Any, v: Any, step: Any, learning_rate: Any, beta1: float = 0.9, beta2: float = 0.999,
    eps: float = 1e-8, weight_decay: float = 0.0, decoupled: bool = True,
) -> tuple[Any, Any, Any]:  # fmt: skip
    if decoupled:
        x = x * (1 - learning_rate * weight_decay)
    else:
        dx = dx + weight_decay * x
    m, v = beta1 * m + (1 - beta1) * dx, beta2 * v + (1 - beta2) * dx * dx
    root = torch.sqrt(v / (1 - beta2**step))
    return x - learning_rate * (m / (1 - beta1**step)) / (root + eps), m, v


def amsgrad(
    x: Any, dx: Any, m: Any, v: Any, v_max: Any, step: Any, learning_rate: Any, beta1: float = 0.9,
    beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0, decoupled: bool = True,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    _, m, new_v = adam(x, dx, m, v, step, learning_rate, beta1, beta2, eps, weight_decay, decoupled)
    v_max = torch.maximum(v_max, new_v)
    shrunk = x * (1 - learning_rate * weight_decay) if decoupled else x
    root = torch.sqrt(v_max / (1 - beta2**step))
    return shrunk - learning_rate * (m / (1 - beta1**step)) / (root + eps), m, new_v, v_max


def adagrad(x: Any, dx: Any, total: Any, learning_rate: Any, eps: float = 1e-10, weight_decay: float = 0.0) -> Any:
    slope = dx + weight_decay * x
    total = total + slope * slope
    return x - learning_rate * slope / (torch.sqrt(total) + eps), total


def rmsprop(
    x: Any, dx: Any, v: Any, velocity: Any, learning_rate: Any, alpha: float = 0.99, eps: float = 1e-8,
    weight_decay: float = 0.0, momentum: float = 0.0,
) -> tuple[Any, ...]:  # fmt: skip
    zeros = torch.zeros_like(v)
    return rmsprop_centered(x, dx, v, velocity, zeros, learning_rate, alpha, eps, weight_decay, momentum, mean=False)[
        :3
    ]


def rmsprop_centered(
    x: Any, dx: Any, v: Any, velocity: Any, m: Any, learning_rate: Any, alpha: float = 0.99, eps: float = 1e-8,
    weight_decay: float = 0.0, momentum: float = 0.0, mean: bool = True,
) -> tuple[Any, ...]:  # fmt: skip
    slope = dx + weight_decay * x
    v = alpha * v + (1 - alpha) * slope * slope
    m = alpha * m + (1 - alpha) * slope
    velocity = momentum * velocity + slope / (torch.sqrt(v - m * m if mean else v) + eps)
    return x - learning_rate * velocity, v, velocity, m


SHAPE = T(3, 5)
POSITIVE = T(3, 5, low=0.1, high=1)
SMALL = T(3, 5, low=-0.1, high=0.1)
RATE = T(dtype="float32", low=0.1, high=0.2)
SAMPLES = [
    Sample("sgd", SHAPE, SHAPE, SHAPE, 0.1, 0.9, ref=sgd),
    Sample(
        "sgd", SHAPE, SHAPE, SHAPE, T(dtype="float32", low=0.1, high=0.2), 0.5, 0.01, True, ref=sgd, id="tensor-rate"
    ),
    Sample("sgd", T(), T(), T(), 0.5, ref=sgd),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 3, 0.01, ref=adam),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 1, 0.01, weight_decay=0.1, ref=adam),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 9, 0.01, weight_decay=0.1, decoupled=False, ref=adam),
    Sample("amsgrad", SHAPE, SHAPE, SHAPE, POSITIVE, POSITIVE, 3, 0.01, ref=amsgrad),
    Sample("amsgrad", SHAPE, SHAPE, SHAPE, POSITIVE, POSITIVE, 2, RATE, weight_decay=0.1, decoupled=False, ref=amsgrad),
    Sample("adagrad", SHAPE, SHAPE, POSITIVE, 0.1, ref=adagrad),
    Sample("adagrad", SHAPE, SHAPE, POSITIVE, RATE, 1e-3, 0.1, ref=adagrad),
    Sample("rmsprop", SHAPE, SHAPE, POSITIVE, SHAPE, 0.1, ref=rmsprop),
    Sample("rmsprop", SHAPE, SHAPE, POSITIVE, SHAPE, RATE, 0.9, 1e-3, 0.1, 0.7, ref=rmsprop),
    Sample("rmsprop_centered", SHAPE, SHAPE, POSITIVE, SHAPE, SMALL, 0.1, momentum=0.9, ref=rmsprop_centered),
]
ERRORS = [
    ErrorCase("sgd", T(3), T(4), T(3), 0.1, error=TypeInferenceError, match="'x' has shape (3,), 'dx' has (4,)"),
    ErrorCase("sgd", T(3), T(3), T(3), T(2), error=TypeInferenceError, match="a number has shape (2,)"),
    ErrorCase("adagrad", T(3), T(3), T(4), 0.1, error=TypeInferenceError, match="'x' has shape (3,), 'total' has (4,)"),
    ErrorCase("rmsprop", T(3), T(3), T(3), T(3), 0.1, T(1), error=TypeInferenceError, match="a number has shape (1,)"),
    ErrorCase(
        "adam", T(3, dtype="int64"), T(3), T(3), T(3), 1, 0.1, error=TypeInferenceError, match="'x' has dtype int64"
    ),
]
