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


SHAPE = T(3, 5)
SAMPLES = [
    Sample("sgd", SHAPE, SHAPE, SHAPE, 0.1, 0.9, ref=sgd),
    Sample(
        "sgd", SHAPE, SHAPE, SHAPE, T(dtype="float32", low=0.1, high=0.2), 0.5, 0.01, True, ref=sgd, id="tensor-rate"
    ),
    Sample("sgd", T(), T(), T(), 0.5, ref=sgd),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 3, 0.01, ref=adam),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 1, 0.01, weight_decay=0.1, ref=adam),
    Sample("adam", SHAPE, SHAPE, SHAPE, T(3, 5, low=0.1, high=1), 9, 0.01, weight_decay=0.1, decoupled=False, ref=adam),
]
ERRORS = [
    ErrorCase("sgd", T(3), T(4), T(3), 0.1, error=TypeInferenceError, match="'x' has shape (3,), 'dx' has (4,)"),
    ErrorCase("sgd", T(3), T(3), T(3), T(2), error=TypeInferenceError, match="a number has shape (2,)"),
    ErrorCase(
        "adam", T(3, dtype="int64"), T(3), T(3), T(3), 1, 0.1, error=TypeInferenceError, match="'x' has dtype int64"
    ),
]
