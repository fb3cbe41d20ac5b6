"""Reads and writes of elements by position, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.backend.reference.precision import widen
from meta.op import data_dependent
from meta.op.dialect.reference import DIALECT

_Ints = tuple[int, ...]


def strided_slice(x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
    """One slice per sliced axis."""
    return x[tuple(map(slice, begin, end, strides or (1,) * len(begin)))]


def _locate(indices: Any, size: int, mode: str = "") -> tuple[Any, Any]:
    """Positions moved into [0, size), and which of them were inside: all for mode "clip" and "wrap". With mode "raise",
    negative positions count from the end."""
    if mode == "wrap":
        return (indices % max(size, 1)).astype(np.int64), np.ones(indices.shape, bool)
    largest = np.iinfo(np.int64).max  # outside of every axis
    positions = (np.minimum(indices, np.uint64(largest)) if indices.dtype == np.uint64 else indices).astype(np.int64)
    clipped = np.clip(positions, 0, max(size - 1, 0))
    if mode == "clip":
        return clipped, np.ones(positions.shape, bool)
    counted = np.where(positions < 0, positions + size, positions) if mode == "raise" else positions
    inside = (counted >= 0) & (counted < size)
    return np.where(inside, counted, 0), inside


def _missing(dtype: Any) -> Any:
    """The value read where there is no element: NaN, the lowest integer, False."""
    name = dtypes.canonical(dtype)
    return np.nan if dtypes.is_inexact(name) else dtypes.int_range(name)[0]


def _read(elements: Any, inside: Any) -> Any:
    """`elements` where `inside`, which has the leading axes of it, holds."""
    inside = np.reshape(inside, (*np.shape(inside), *(1,) * (elements.ndim - np.ndim(inside))))
    return np.where(inside, elements, np.asarray(_missing(elements.dtype)).astype(elements.dtype))


def take(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    size = x.size if axis is None else x.shape[axis]
    positions, inside = _locate(indices, size, mode)
    if inside.all():
        return np.take(x, positions, axis)
    if axis is None:
        return _read(np.take(x, positions), inside)
    lead = axis % x.ndim
    index_axes = range(lead, lead + indices.ndim)
    first = np.moveaxis(np.take(x, positions, lead), index_axes, range(indices.ndim))
    return np.moveaxis(_read(first, inside), range(indices.ndim), index_axes)


_Place = tuple[tuple[Any, ...], Any]
"""Index arrays, and which of the places are inside."""


def _positions_along(indices: Any, axis: int, shape: _Ints) -> _Place:
    """For each element of `indices`, the place in a tensor of `shape` that it names along `axis`."""
    grid = list(np.indices(indices.shape))
    positions, inside = _locate(indices, shape[axis] if shape else 1)
    if grid:
        grid[axis] = positions
    return tuple(grid), inside


def gather(x: Any, axis: int, indices: Any) -> Any:
    positions, inside = _positions_along(indices, axis, x.shape)
    return _read(np.asarray(x[positions]), inside)


_REDUCTIONS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(x: Any, place: _Place, src: Any, reduction: str) -> Any:
    out = widen(x).copy()
    positions, inside = place
    if not positions and not inside:
        return out
    index: Any = tuple(p[inside] for p in positions) or ...
    values = widen(src)[inside] if positions else widen(src)
    if reduction == "update":
        out[index] = values
    else:
        _REDUCTIONS[reduction].at(out, index, values)
    return out


def scatter_elements(x: Any, axis: int, indices: Any, src: Any, reduction: str) -> Any:
    return _scatter(x, _positions_along(indices, axis, x.shape), src, reduction)


def scatter_nd(x: Any, indices: Any, src: Any, reduction: str) -> Any:
    return _scatter(x, _leading_positions(indices, x.shape, 0), src, reduction)


def _leading_positions(indices: Any, shape: _Ints, batch_dims: int) -> _Place:
    batch = np.indices(indices.shape[1:])[:batch_dims]
    located = [_locate(i, size) for i, size in zip(indices, shape[batch_dims:], strict=False)]
    inside = np.logical_and.reduce([inside for _, inside in located])
    return (*batch, *(positions for positions, _ in located)), inside


def gather_nd(x: Any, indices: Any, batch_dims: int) -> Any:
    positions, inside = _leading_positions(indices, x.shape, batch_dims)
    return _read(np.asarray(x[positions]), inside)


def argwhere(x: Any, size: tuple[int, ...]) -> Any:
    out = np.full((size[0], x.ndim), -1)
    positions = np.argwhere(x != 0)[: size[0]]
    out[: len(positions)] = positions
    return out


DIALECT.implement("argwhere", argwhere, accepts=data_dependent.refusal)
DIALECT.implement("embedding", lambda weight, indices: take(weight, indices, 0, ""))
DIALECT.implement("gather", gather)
DIALECT.implement("gather_nd", gather_nd)
DIALECT.implement("index_select", lambda x, axis, indices: take(x, indices, axis, ""))
DIALECT.implement("scatter_elements", scatter_elements)
DIALECT.implement("scatter_nd", scatter_nd)
DIALECT.implement("strided_slice", strided_slice)
DIALECT.implement("take", take)
