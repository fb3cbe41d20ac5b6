"""Neural-network operators in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain
from meta.op.dialect.reference.random import bernoulli

Array = Any


def log_softmax(x: Array, axis: int) -> Array:
    x = widen(x)
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def softmax(x: Array, axis: int) -> Array:
    x = widen(x)
    exponentials = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return exponentials / np.sum(exponentials, axis=axis, keepdims=True)


def softmax_dx(y: Array, dy: Array, axis: int) -> Array:
    y, dy = widen(y), widen(dy)
    return y * (dy - np.sum(y * dy, axis=axis, keepdims=True))


def log_softmax_dx(y: Array, dy: Array, axis: int) -> Array:
    y, dy = widen(y), widen(dy)
    return dy - np.exp(y) * np.sum(dy, axis=axis, keepdims=True)


def bias_add(x: Array, bias: Array, axis: int) -> Array:
    shape = [1] * x.ndim
    shape[axis] = -1
    return x + bias.reshape(shape)


def dropout(x: Array, key: Array, p: float) -> tuple[Array, Array]:
    mask = bernoulli(key, x.shape, 1 - p, "bool")
    return dropout_dx(x, mask, p), mask


def dropout_dx(dy: Array, mask: Array, p: float) -> Array:
    return np.where(mask, widen(dy) * (0.0 if p == 1 else 1 / (1 - p)), 0)


def _accept_scalars(function: Any) -> Any:
    """`function` that also takes 0-d tensors, as rows of one element."""

    def run(*args: Any) -> Array:
        *arrays, axis = args
        if arrays[0].ndim:
            return function(*arrays, axis)
        return function(*(a.reshape(1) for a in arrays), 0)[0]

    return run


plain(
    {
        "softmax": _accept_scalars(softmax),
        "softmax_dx": _accept_scalars(softmax_dx),
        "log_softmax": _accept_scalars(log_softmax),
        "log_softmax_dx": _accept_scalars(log_softmax_dx),
        "bias_add": bias_add,
        "dropout": dropout,
        "dropout_dx": dropout_dx,
    }
)
