"""Reads and writes of elements by position, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op import data_dependent
from meta.op.dialect.reference import DIALECT

_Ints = tuple[int, ...]


def _slices(begin: _Ints, end: _Ints, strides: _Ints) -> tuple[slice, ...]:
    """One slice per sliced axis."""
    return tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides or (1,) * len(begin), strict=True))


def strided_slice(x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
    return x[_slices(begin, end, strides)]


def strided_slice_dx(dy: Any, shape: _Ints, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
    out = np.zeros(shape, dy.dtype)
    out[_slices(begin, end, strides)] = dy
    return out


def strided_set(x: Any, v: Any, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
    out = x.copy()
    out[_slices(begin, end, strides)] = v
    return out


def _bound_indices(indices: Any, size: int, mode: str = "clip") -> Any:
    """Indices moved into [0, size) by clipping or wrapping."""
    positions = indices.astype(np.int64)
    if size == 0:
        return positions
    return positions % size if mode == "wrap" else np.clip(positions, 0, size - 1)


def take(x: Any, indices: Any, axis: int | None, mode: str) -> Any:
    size = x.size if axis is None else x.shape[axis]
    return np.take(x, _bound_indices(indices, size, mode), axis)


def take_dx(dy: Any, indices: Any, shape: _Ints, axis: int | None, mode: str) -> Any:
    if axis is None:
        flat = np.zeros(int(np.prod(shape)), widen(dy).dtype)
        np.add.at(flat, _bound_indices(indices, flat.size, mode), widen(dy))
        return flat.reshape(shape)
    axis = axis % len(shape)
    out = np.zeros(shape, widen(dy).dtype)
    positions: Any = (slice(None),) * axis + (_bound_indices(indices, shape[axis], mode),)
    np.add.at(out, positions, widen(dy))
    return out


def _positions_along(indices: Any, axis: int, shape: _Ints) -> tuple[Any, ...]:
    """For each element of `indices`, the position in a tensor of `shape` that it names along `axis`."""
    grid = list(np.indices(indices.shape))
    if grid:
        grid[axis] = _bound_indices(indices, shape[axis])
    return tuple(grid)


def gather(x: Any, axis: int, indices: Any) -> Any:
    return x[_positions_along(indices, axis, x.shape)]


def scatter_add(x: Any, axis: int, indices: Any, src: Any) -> Any:
    out = widen(x).copy()
    np.add.at(out, _positions_along(indices, axis, x.shape), widen(src))
    return out


_REDUCTIONS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(x: Any, positions: Any, src: Any, reduction: str) -> Any:
    out = widen(x).copy()
    if reduction == "update":
        out[positions] = src
    else:
        _REDUCTIONS[reduction].at(out, positions, widen(src))
    return out


def scatter_elements(x: Any, axis: int, indices: Any, src: Any, reduction: str) -> Any:
    return _scatter(x, _positions_along(indices, axis, x.shape), src, reduction)


def scatter_nd(x: Any, indices: Any, src: Any, reduction: str) -> Any:
    return _scatter(x, _leading_positions(indices, x.shape, 0), src, reduction)


def gather_dx(dy: Any, axis: int, indices: Any, shape: _Ints) -> Any:
    return scatter_add(np.zeros(shape, dy.dtype), axis, indices, dy)


def _leading_positions(indices: Any, shape: _Ints, batch_dims: int) -> tuple[Any, ...]:
    batch = np.indices(indices.shape[1:])[:batch_dims]
    positions = (_bound_indices(i, size) for i, size in zip(indices, shape[batch_dims:], strict=False))
    return (*batch, *positions)


def gather_nd(x: Any, indices: Any, batch_dims: int) -> Any:
    return x[_leading_positions(indices, x.shape, batch_dims)]


def gather_nd_dx(dy: Any, indices: Any, shape: _Ints, batch_dims: int) -> Any:
    out = np.zeros(shape, widen(dy).dtype)
    np.add.at(out, _leading_positions(indices, shape, batch_dims), widen(dy))
    return out


def embedding_dx(dy: Any, indices: Any, num_weight: int) -> Any:
    return take_dx(dy, indices, (num_weight, *dy.shape[indices.ndim :]), 0, "clip")


def argwhere(x: Any, size: tuple[int, ...]) -> Any:
    out = np.full((size[0], x.ndim), -1)
    positions = np.argwhere(x != 0)[: size[0]]
    out[: len(positions)] = positions
    return out


DIALECT.implement("argwhere", argwhere, accepts=data_dependent.refusal)
DIALECT.implement("embedding", lambda weight, indices: take(weight, indices, 0, "clip"))
DIALECT.implement("embedding_dx", embedding_dx)
DIALECT.implement("gather", gather)
DIALECT.implement("gather_dx", gather_dx)
DIALECT.implement("gather_nd", gather_nd)
DIALECT.implement("gather_nd_dx", gather_nd_dx)
DIALECT.implement("index_select", lambda x, axis, indices: take(x, indices, axis, "clip"))
DIALECT.implement("scatter_add", scatter_add)
DIALECT.implement("scatter_elements", scatter_elements)
DIALECT.implement("scatter_nd", scatter_nd)
DIALECT.implement("strided_set", strided_set)
DIALECT.implement("strided_slice", strided_slice)
DIALECT.implement("strided_slice_dx", strided_slice_dx)
DIALECT.implement("take", take)
DIALECT.implement("take_dx", take_dx)
