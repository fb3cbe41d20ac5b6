"""Distinct elements. Results whose shape depends on values are not available in traced programs."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import product
from meta.functional._checks import as_dtype, axis_of
from meta.functional.positions import known_number

__all__ = ["unique", "unique_consecutive"]


def unique(x: Tensor, axis: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct elements in ascending order, for each element of the flattened x the position of its value among
    them, and how often each occurs (int64). With an axis, the distinct slices along it, in lexicographic order.

    Raises TraceError in traced programs."""
    if axis is None:
        values, _, inverse, counts = unique_all(x)
        return values, inverse, counts
    axis = axis_of("unique", axis, x.ndim)
    _, first, inverse, counts = unique_all(_ranks(_rows(x, axis)))
    return meta.take(x, first, axis), inverse, counts


def unique_all(x: T) -> tuple[T, T, T, T]:
    """The results of `unique`, and after the distinct elements the position in the flattened x at which each occurs
    first (int64). Raises TraceError in traced programs."""
    flat = meta.reshape(x, (product(x.shape),))
    order = meta.argsort(flat, 0)
    group, first, counts = _groups(meta.reshape(meta.take(flat, order, 0), (-1, 1)) if order.size else flat)
    inverse = meta.scatter_elements(meta.zeros_like(group), 0, order, group)
    indices = meta.take(order, first, 0)
    return meta.take(flat, indices, 0), indices, inverse, counts


def unique_consecutive(x: T, axis: int | None = None) -> tuple[T, T, T]:
    """The first element of each run of equal ones, for each element of the flattened x the number of its run, and the
    lengths of the runs (int64). With an axis, the same of the slices along it. Raises TraceError in traced programs."""
    if axis is None:
        x, axis = meta.reshape(x, (product(x.shape),)), 0
    axis = axis_of("unique_consecutive", axis, x.ndim)
    group, first, counts = _groups(_rows(x, axis))
    return meta.take(x, first, axis), group, counts


def _rows(x: T, axis: int) -> T:
    """The slices along an axis as rows of a matrix."""
    moved = meta.moveaxis(x, axis, 0)
    return meta.reshape(moved, (moved.shape[0], product(moved.shape[1:])))


def _groups(rows: Tensor) -> tuple[Any, Any, Any]:
    """For each row the number of its run of equal rows, the first row of each run, and the lengths of the runs."""
    size = product(rows.shape[:1]).__index__()
    if not size:
        none = meta.zeros((0,), "int64", rows.device)
        return none, none, none
    differ = meta.any(meta.not_equal(rows[1:], rows[:-1]), 1)
    new = meta.pad(as_dtype(differ, "int64"), (1, 0), 1)
    count = known_number("unique", meta.sum(new))
    group = meta.cumsum(new, 0) - 1
    first = meta.reshape(meta.argwhere(new, count), (count,))
    counts = meta.scatter_add(meta.zeros((count,), "int64", rows.device), 0, group, meta.ones_like(group))
    return group, first, counts


def _ranks(rows: Tensor) -> Tensor:
    """A number for each row of a matrix: equal ones for equal rows, ascending in lexicographic order.

    Each element is replaced by its rank in its column; then two columns at a time become one, by the ranks of pairs."""
    count, width = rows.shape
    if not count or not width:
        return meta.zeros((count,), "int64", rows.device)
    ranks = _column_ranks(rows)
    while ranks.shape[1] > 1:
        even = ranks if ranks.shape[1] % 2 == 0 else meta.pad(ranks, (0, 0, 0, 1))
        ranks = _column_ranks(even[:, 0::2] * count + even[:, 1::2])
    return ranks[:, 0]


def _column_ranks(x: T) -> T:
    order = meta.argsort(x, 0)
    ordered = meta.gather(x, 0, order)
    differ = as_dtype(meta.not_equal(ordered[1:], ordered[:-1]), "int64")
    ranks = meta.cumsum(meta.pad(differ, (1, 0, 0, 0)), 0)
    return meta.scatter_elements(meta.zeros_like(ranks), 0, order, ranks)
