"""Functions whose results are positions, or depend on values in their shape."""

from __future__ import annotations

from typing import Any

import meta
from meta.dim import product
from meta.eager.ndarray import NDArray
from meta.errors import TraceError

__all__ = ["searchsorted", "unique"]


def _number(name: str, count: Any) -> int:
    if isinstance(count, NDArray):
        return int(count.item())
    raise TraceError(
        name,
        "the shape of the result depends on values",
        "a result of known shape in a program",
        "give it a size, or call it outside of one",
    )


def unique(x: Any) -> tuple[Any, Any, Any]:
    """The distinct elements in ascending order, for each element of the flattened x the position of its value among
    them, and how often each occurs (int64). Raises TraceError in traced programs."""
    values, _, inverse, counts = unique_all(x)
    return values, inverse, counts


def unique_all(x: Any) -> tuple[Any, Any, Any, Any]:
    """The results of `unique`, and after the distinct elements the position in the flattened x at which each occurs
    first (int64). Raises TraceError in traced programs."""
    flat = meta.reshape(x, (-1,))
    order = meta.argsort(flat, 0)
    ordered = meta.take(flat, order, 0)
    size = product(flat.shape).__index__()
    new = meta.pad(meta.cast(_changes(ordered, size), "int64"), (min(size, 1), 0), 1)
    count = _number("unique", meta.sum(new))
    group = meta.cumsum(new, 0) - 1
    inverse = meta.scatter_elements(meta.zeros_like(group), 0, order, group)
    first = meta.reshape(meta.argwhere(new, count), (count,))
    counts = meta.scatter_add(meta.zeros((count,), "int64", x.device), 0, group, meta.ones_like(group))
    return meta.take(ordered, first, 0), meta.take(order, first, 0), inverse, counts


def _changes(ordered: Any, size: int) -> Any:
    """Whether each element but the first differs from the one before."""
    last = max(size - 1, 0)
    return meta.not_equal(
        meta.strided_slice(ordered, (min(size, 1),), (size,)), meta.strided_slice(ordered, (0,), (last,))
    )


def searchsorted(sorted_sequence: Any, values: Any, right: bool = False) -> Any:
    """How many elements of an ascending sequence (the last axis) are less than each value, or not greater (right): the
    places where the values would be put. The leading axes of both agree, or the sequence is 1-D."""
    sequence = meta.expand_dims(sorted_sequence, -2)
    value = meta.expand_dims(values, -1)
    before = meta.less_equal(sequence, value) if right else meta.less(sequence, value)
    return meta.sum(before, -1)
