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


plain({
    "arange": arange,
    "eye": lambda n, m, dtype, device: np.eye(n, m),
    "full": lambda shape, fill_value, dtype, device: np.full(shape, np.asarray(fill_value).astype(to_numpy(dtype))),
    "linspace": lambda start, stop, num, dtype, device: np.linspace(start, stop, num),
})  # fmt: skip
