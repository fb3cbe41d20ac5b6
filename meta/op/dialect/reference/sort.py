"""Sorting in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import DIALECT


def argsort(x: Any, axis: int, descending: bool) -> Any:
    if not x.ndim:
        return np.zeros((), np.int64)
    x = widen(x)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Sorted from the end and reversed: equal elements keep their order.
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def sort(x: Any, axis: int, descending: bool) -> Any:
    return np.take_along_axis(x, argsort(x, axis, descending), axis) if x.ndim else x


def topk(x: Any, k: int, axis: int, largest: bool) -> Any:
    indices = np.take(argsort(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, indices, axis), indices


DIALECT.implement("argsort", argsort)
DIALECT.implement("sort", sort)
DIALECT.implement("topk", topk)
