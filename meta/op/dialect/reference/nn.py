"""NumPy versions of neural-network operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference._elementwise import plain, wide
from meta.op.dialect.reference.random import bernoulli

Array = Any


def log_softmax(x: Array, axis: int) -> Array:
    x = wide(x)
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def softmax(x: Array, axis: int) -> Array:
    x = wide(x)
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return powers / np.sum(powers, axis=axis, keepdims=True)


def softmax_dx(y: Array, dy: Array, axis: int) -> Array:
    y, dy = wide(y), wide(dy)
    return y * (dy - np.sum(y * dy, axis=axis, keepdims=True))


def log_softmax_dx(y: Array, dy: Array, axis: int) -> Array:
    y, dy = wide(y), wide(dy)
    return dy - np.exp(y) * np.sum(dy, axis=axis, keepdims=True)


def bias_add(x: Array, bias: Array, axis: int) -> Array:
    shape = [1] * x.ndim
    shape[axis] = -1
    return x + bias.reshape(shape)


def dropout(x: Array, key: Array, p: float) -> tuple[Array, Array]:
    mask = bernoulli(key, x.shape, 1 - p, "bool")
    return dropout_dx(x, mask, p), mask


def dropout_dx(dy: Array, mask: Array, p: float) -> Array:
    return np.where(mask, wide(dy) * (0.0 if p == 1 else 1 / (1 - p)), 0)


def _scalar_axis(function: Any) -> Any:
    """A 0-d tensor is a row of one."""

    def run(*args: Any) -> Array:
        *arrays, axis = args
        if arrays[0].ndim:
            return function(*arrays, axis)
        return function(*(a.reshape(1) for a in arrays), 0)[0]

    return run


plain(
    {
        "softmax": _scalar_axis(softmax),
        "softmax_dx": _scalar_axis(softmax_dx),
        "log_softmax": _scalar_axis(log_softmax),
        "log_softmax_dx": _scalar_axis(log_softmax_dx),
        "bias_add": bias_add,
        "dropout": dropout,
        "dropout_dx": dropout_dx,
    }
)
