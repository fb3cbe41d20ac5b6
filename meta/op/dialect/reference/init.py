"""Operators that create tensors, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.dtype import to_numpy
from meta.op.dialect.reference import plain

Array = Any


def arange(start: float, stop: float | None, step: float, *_: Any) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    return np.arange(first, last, step)


def one_hot(indices: Array, depth: int, dtype: str, axis: int) -> Array:
    out = np.expand_dims(indices, -1) == np.arange(depth)
    return np.moveaxis(out, -1, axis)


plain({
    "arange": arange,
    "eye": lambda n, m, dtype, device: np.eye(n, m),
    "full": lambda shape, fill_value, dtype, device: np.full(shape, np.asarray(fill_value).astype(to_numpy(dtype))),
    "full_like": lambda x, fill_value, dtype: np.full(
        x.shape, np.asarray(fill_value).astype(x.dtype if dtype is None else to_numpy(dtype))
    ),
    "linspace": lambda start, stop, num, dtype, device: np.linspace(start, stop, num),
    "one_hot": one_hot,
    "ones": lambda shape, dtype, device: np.ones(shape),
    "ones_like": lambda x, dtype: np.ones(x.shape),
    "zeros": lambda shape, dtype, device: np.zeros(shape),
    "zeros_like": lambda x, dtype: np.zeros(x.shape),
})  # fmt: skip
