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
    if not x.ndim:
        return x, np.zeros((), np.int64)
    indices = np.take(argsort(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, indices, axis), indices


def binary_search(sequence: Any, values: Any, right: bool) -> Any:
    side = "right" if right else "left"
    rows = np.broadcast_to(widen(sequence), (*values.shape[:-1], sequence.shape[-1]))
    if sequence.ndim == 1:
        return np.asarray(np.searchsorted(widen(sequence), widen(values), side), np.int64)
    out = np.empty(values.shape, np.int64)
    for i in np.ndindex(values.shape[:-1]):
        out[i] = np.searchsorted(rows[i], widen(values[i]), side)
    return out


DIALECT.implement("argsort", argsort)
DIALECT.implement("binary_search", binary_search)
DIALECT.implement("sort", sort)
DIALECT.implement("topk", topk)
