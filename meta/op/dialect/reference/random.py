"""NumPy versions of random operators: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference import philox
from meta.dtype import to_numpy
from meta.op.dialect.reference import plain

Array = Any
Shape = tuple[int, ...]


def uniform(key: Array, shape: Shape, low: float, high: float, dtype: str) -> Array:
    kind = np.float64 if dtype == "float64" else np.float32
    first, last = kind(low), kind(high)
    x = first + philox.uniform01(key, shape, dtype) * (last - first)
    return np.where(x.astype(to_numpy(dtype)).astype(kind) < last, x, first)


def normal(key: Array, shape: Shape, mean: float, std: float, dtype: str) -> Array:
    words = philox.words(key, shape, 4 if dtype == "float64" else 2)
    if dtype == "float64":
        share = 1 - philox.unit(words, dtype)
        turn = philox.unit(words[2:], dtype)
    else:
        share = ((words[0] >> np.uint32(1)).astype(np.float32) + np.float32(1)) * np.float32(2.0**-31)
        turn = philox.unit(words[1:], "float32")
    gauss = np.sqrt(-2 * np.log(share.astype(np.float64))) * np.cos(2 * np.pi * turn.astype(np.float64))
    return mean + gauss * std


def randint(key: Array, shape: Shape, low: int, high: int, dtype: str) -> Array:
    return philox.integer(key, shape, low, high)


def bernoulli(key: Array, shape: Shape, p: float, dtype: str) -> Array:
    return philox.uniform01(key, shape) < np.float32(p)


plain({"bernoulli": bernoulli, "normal": normal, "randint": randint, "uniform": uniform})
