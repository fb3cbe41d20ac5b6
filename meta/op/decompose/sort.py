"""Searches in ascending rows."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import is_float
from meta.op.decomposition import decomposition


@decomposition("binary_search")
def binary_search(sequence: Any, values: Any, right: bool) -> Any:
    """The numbers of smaller elements, or of those that are not larger; NaN is larger than every number."""
    rows, x = meta.expand_dims(sequence, -2), meta.expand_dims(values, -1)
    before = meta.less_equal(rows, x) if right else meta.less(rows, x)
    if is_float(values.dtype):
        is_last = meta.isnan(x)
        is_last = is_last if right else meta.logical_and(is_last, meta.logical_not(meta.isnan(rows)))
        before = meta.logical_or(before, is_last)
    return meta.sum(meta.cast(before, "int64"), -1)


@decomposition("rank_positions")
def rank_positions(x: Any, ranks: Any, axis: int) -> Any:
    """A sort, and the elements at the ranks."""
    size = x.shape[axis] if x.ndim else 0
    if size == 0:
        return meta.zeros_like(ranks)
    return meta.gather(meta.argsort(x, axis), axis, meta.clip(ranks, 0, size - 1) if isinstance(size, int) else ranks)
