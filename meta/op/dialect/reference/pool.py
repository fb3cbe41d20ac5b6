"""Pooling in NumPy, one window at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.backend.windows import Windows
from meta.op import windows
from meta.op.dialect.reference import DIALECT

_Ints = tuple[int, ...]
_Axes = tuple[Windows, ...]


def _windows(axes: _Axes) -> Iterator[tuple[_Ints, tuple[Any, ...]]]:
    """Each window with the index of its elements in the spatial axes."""
    members = [
        [[axis.position(i, r) for r in range(axis.kernel) if all(axis.inside(i, r))] for i in range(axis.count)]
        for axis in axes
    ]
    for i in product(*(range(axis.count) for axis in axes)):
        yield i, np.ix_(*(np.array(m[a], np.int64) for m, a in zip(members, i, strict=True)))


def _elements_of(data: Any, window: tuple[Any, ...]) -> Any:
    """The elements of a window as one axis after batch and channels."""
    out = data[(..., *window)]
    return out.reshape(*out.shape[:2], int(np.prod(out.shape[2:])))


def _elements(axes: _Axes, i: _Ints, include_pad: bool) -> int:
    return int(np.prod([axis.elements(a, include_pad) for axis, a in zip(axes, i, strict=True)]))


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _argmax(values: Any) -> Any:
    """The index of the maximum along the last axis: the first of equal elements, the last of several NaN."""
    nans = np.isnan(values)
    last_nan = values.shape[-1] - 1 - np.argmax(nans[..., ::-1], -1)
    return np.where(nans.any(-1), last_nan, np.argmax(values, -1))


def _max_with_indices(x: Any, axes: _Axes) -> tuple[Any, Any]:
    """The maximum of each window, and its flat index in the spatial axes; -1 where a window has no element."""
    data = widen(x)
    shape = (*x.shape[:2], *(axis.count for axis in axes))
    out, indices = np.full(shape, _lowest(data.dtype), data.dtype), np.full(shape, -1, np.int64)
    flat = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:])
    for i, window in _windows(axes):
        inside = _elements_of(data, window)
        if inside.shape[-1]:
            out[(..., *i)] = inside.max(-1)
            indices[(..., *i)] = flat[window].reshape(-1)[_argmax(inside)]
    return out, indices


def _max_dx(dy: Any, indices: Any, shape: _Ints) -> Any:
    grad = widen(dy)
    out = np.zeros((*shape[:2], int(np.prod(shape[2:]))), grad.dtype)
    n, c, *_ = np.indices(dy.shape)
    in_range = (indices >= 0) & (indices < out.shape[2])
    np.add.at(out, (n[in_range], c[in_range], indices[in_range]), grad[in_range])
    return out.reshape(shape)


def _avg(x: Any, axes: _Axes, include_pad: bool) -> Any:
    data = widen(x)
    out = np.zeros((*x.shape[:2], *(axis.count for axis in axes)), data.dtype)
    for i, window in _windows(axes):
        total, count = _elements_of(data, window).sum(-1), _elements(axes, i, include_pad)
        out[(..., *i)] = _cut_quotient(total, max(count, 1)) if data.dtype.kind in "iu" else total / count
    return out


def _cut_quotient(total: Any, count: int) -> Any:
    """The quotient of integers, towards zero."""
    divisor = total.dtype.type(count)
    return total // divisor + ((total < 0) & (total % divisor != 0)).astype(total.dtype)


def _avg_dx(dy: Any, shape: _Ints, axes: _Axes, include_pad: bool) -> Any:
    grad = widen(dy)
    out = np.zeros(shape, grad.dtype)
    for i, window in _windows(axes):
        share = grad[(..., *i)] / _elements(axes, i, include_pad)
        out[(..., *window)] += share.reshape(*shape[:2], *[1] * len(axes))
    return out


def max_pool(x: Any, *window_args: Any) -> Any:
    return max_pool_with_indices(x, *window_args)[0]


def max_pool_with_indices(x: Any, *window_args: Any) -> Any:
    return _max_with_indices(x, windows.pool_windows(x.shape[2:], *window_args))


def max_pool_dx(dy: Any, indices: Any, shape: _Ints, *_: Any) -> Any:
    return _max_dx(dy, indices, shape)


def avg_pool(x: Any, *args: Any) -> Any:
    *window_args, include_pad = args
    return _avg(x, windows.pool_windows(x.shape[2:], *window_args), include_pad)


def avg_pool_dx(dy: Any, shape: _Ints, *args: Any) -> Any:
    *window_args, include_pad = args
    return _avg_dx(dy, shape, windows.pool_windows(shape[2:], *window_args), include_pad)


def _adapted(x: Any, size: _Ints) -> _Axes:
    rank = x.ndim - 2
    return windows.adaptive_pool_windows(x.shape[2:], windows.per_axis("size", size, rank))


def adaptive_max_pool(x: Any, size: _Ints) -> Any:
    return adaptive_max_pool_with_indices(x, size)[0]


def adaptive_max_pool_with_indices(x: Any, size: _Ints) -> Any:
    return _max_with_indices(x, _adapted(x, size))


def adaptive_avg_pool(x: Any, size: _Ints) -> Any:
    return _avg(x, _adapted(x, size), False)


def adaptive_avg_pool_dx(dy: Any, shape: _Ints) -> Any:
    return _avg_dx(dy, shape, windows.adaptive_pool_windows(shape[2:], dy.shape[2:]), False)


_FUNCTIONS = {
    "max_pool{}d": max_pool,
    "max_pool{}d_dx": max_pool_dx,
    "max_pool{}d_with_indices": max_pool_with_indices,
    "avg_pool{}d": avg_pool,
    "avg_pool{}d_dx": avg_pool_dx,
    "adaptive_max_pool{}d": adaptive_max_pool,
    "adaptive_max_pool{}d_dx": max_pool_dx,
    "adaptive_max_pool{}d_with_indices": adaptive_max_pool_with_indices,
    "adaptive_avg_pool{}d": adaptive_avg_pool,
    "adaptive_avg_pool{}d_dx": adaptive_avg_pool_dx,
}
for _name, _function in _FUNCTIONS.items():
    for _rank in (1, 2, 3):
        DIALECT.implement(_name.format(_rank), _function)
