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
    """By the bisection of the kernels, so that rows that are not ascending give the same positions as well."""
    rows, keys = widen(sequence), widen(values)
    index = tuple(np.indices(values.shape, sparse=True)[:-1]) if sequence.ndim > 1 else ()
    count: int = sequence.shape[-1]

    def moved(first: Any, position: Any, steps: int) -> Any:
        others = rows[(*index, position)]
        return first + steps * (~_is_less(keys, others) if right else _is_less(others, keys))

    first: Any = np.zeros(values.shape, np.int64)
    while count > 1:
        first = moved(first, first + count // 2 - 1, count // 2)
        count -= count // 2
    return np.asarray(moved(first, first, 1) if count else first, np.int64)


def _is_less(a: Any, b: Any) -> Any:
    """Whether elements of a come before elements of b, NaN last."""
    return (a < b) | (~np.isnan(a) & np.isnan(b))


DIALECT.implement("argsort", argsort)
DIALECT.implement("binary_search", binary_search)
DIALECT.implement("sort", sort)
DIALECT.implement("topk", topk)
