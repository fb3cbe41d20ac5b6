"""Sorting, searching and sets. Results whose shape depends on values are not available in traced functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.functional.sets import unique_all as _unique_all


class UniqueAll(NamedTuple):
    """Distinct elements, where each occurs first, which of them each element of x is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct elements, and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct elements, and for each element of x which of them it is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements, ascending (complex ones by their real parts, then by their imaginary ones); every NaN is
    distinct. Positions and counts are int64."""
    if dtypes.is_complex(x.dtype):
        return _unique_complex(x)
    values, indices, inverse, counts = _unique_all(x)
    return UniqueAll(values, indices, meta.reshape(inverse, x.shape), counts)


def _unique_complex(x: Tensor) -> UniqueAll:
    """By the ranks of the real and of the imaginary parts."""
    rows, columns = _unique_all(meta.real(x)), _unique_all(meta.imag(x))
    _, indices, inverse, counts = _unique_all(rows[2] * columns[0].size + columns[2])
    flat = meta.reshape(x, (-1,))
    return UniqueAll(meta.take(flat, indices, 0), indices, meta.reshape(inverse, x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements, ascending, and how often each occurs."""
    out = unique_all(x)
    return UniqueCounts(out.values, out.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, ascending, and for each element of x the position of its value among them."""
    out = unique_all(x)
    return UniqueInverse(out.values, out.inverse_indices)


def unique_values(x: Tensor, /) -> Any:
    """The distinct elements, ascending."""
    return unique_all(x).values


def nonzero(x: Tensor, /) -> tuple[Any, ...]:
    """The positions of the elements that are not 0: one int64 vector an axis."""
    is_set = meta.not_equal(x, 0) if dtypes.is_complex(x.dtype) else x
    return tuple(meta.squeeze(part, 1) for part in meta.split(meta.argwhere(is_set), x.ndim, 1))


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements sorted along an axis, always in a stable way."""
    return meta.sort(x, axis, descending)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The positions that sort the elements along an axis, always in a stable way."""
    return meta.argsort(x, axis, descending)
