"""Means and variances in NumPy: NaN without elements, and then no warning as from `numpy.mean` and `numpy.var`."""

from __future__ import annotations

from typing import Any

import numpy as np

Axis = tuple[int, ...] | int | None


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum divided by the number of elements."""
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / np.asarray(_count(x, axis), total.dtype if total.dtype.kind == "f" else np.float64)


def variance(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """The sum of squared distances from the mean, divided by the number of elements less `ddof`."""
    centred = x - mean(x, axis, keepdims=True)
    squares = centred.real**2 + centred.imag**2 if x.dtype.kind == "c" else centred**2
    total = np.sum(squares, axis=axis, keepdims=keepdims)
    return total / np.asarray(max(_count(x, axis) - ddof, 0), total.dtype)


def deviation(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """The square root of the variance, which may overflow where this does not."""
    largest = np.max(np.abs(x), initial=0)
    scale = largest if np.isfinite(largest) and largest > 1 else x.real.dtype.type(1)
    return np.sqrt(variance(x / scale, axis, ddof, keepdims)) * scale


def _count(x: Any, axis: Axis) -> int:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
