"""Pooling and its gradients, by the elements of all windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.backend.windows import Windows
from meta.dtype import int_range, is_int
from meta.op import windows
from meta.op.decomposition import decompose

_Axes = tuple[Windows, ...]
_Array = np.ndarray[Any, Any]


def _elements(axes: _Axes) -> tuple[_Array, _Array]:
    """The flat positions of the elements of all windows, moved inside, and which exist: (*windows, elements)."""
    counts, rank = [axis.count for axis in axes], len(axes)
    grid = np.indices((*counts, *(axis.kernel for axis in axes)))
    places: Any = np.zeros(grid.shape[1:], np.int64)
    exist: Any = np.ones(grid.shape[1:], bool)
    for axis, i, r in zip(axes, grid[:rank], grid[rank:], strict=True):
        places = places * axis.size + np.minimum(np.maximum(axis.position(i, r), 0), axis.size - 1)
        for condition in axis.inside(i, r):
            exist &= condition
    return places.reshape(*counts, -1), exist.reshape(*counts, -1)


def _repeated(places: _Array, exist: _Array) -> _Array:
    """Positions with the one before in place of each that does not exist, or the first that does: their maximum, its
    first and its last position are the same."""
    order: Any = exist.argmax(-1)[..., None] + np.zeros(exist.shape, np.int64)
    order[exist] = np.nonzero(exist)[-1]
    order = np.maximum.accumulate(order, -1)
    return np.take_along_axis(places, order, -1)


def _counts(axes: _Axes, include_pad: bool, x: Tensor) -> Any:
    """The number of elements of each window, with an axis for its elements."""
    grid: Any = np.indices([axis.count for axis in axes])
    counts: Any = np.ones(grid.shape[1:])
    for axis, i in zip(axes, grid, strict=True):
        counts *= axis.elements(i, include_pad, np.minimum, np.maximum)
    return meta.array(counts[..., None], x.dtype, device=x.device)


def _picked(x: Tensor, places: _Array) -> Any:
    """(batch, channels, *windows, elements)."""
    return meta.take(meta.reshape(x, (*x.shape[:2], prod(x.shape[2:]))), meta.array(places, device=x.device), 2)


def _masked(values: Tensor, exist: _Array, other: float) -> Any:
    """`other` for values that do not exist."""
    return values if exist.all() else meta.where(meta.array(exist, device=values.device), values, other)


def _placed(values: Tensor, places: Tensor, shape: Sequence[int]) -> Any:
    """The sums of values at flat places of images of a shape."""
    flat = meta.zeros((*shape[:2], prod(shape[2:])), values.dtype, values.device)
    places, values = (meta.reshape(t, (*shape[:2], prod(values.shape[2:]))) for t in (places, values))
    return meta.reshape(meta.scatter_add(flat, 2, places, values), shape)


def _maximum(x: Tensor, axes: _Axes) -> tuple[Any, Any]:
    """The maximum of each window, and its flat position: of the first of equal elements, of the last of several NaN, -1
    where a window has no element."""
    places, exist = _elements(axes)
    places, exists = _repeated(places, exist), np.any(exist, -1, keepdims=True)
    values = _masked(_picked(x, places), exists, int_range(x.dtype)[0] if is_int(x.dtype) else -np.inf)
    nans = meta.cast(meta.isnan(values), "int32")
    last_nan = values.shape[-1] - 1 - meta.argmax(meta.flip(nans, (-1,)), -1)
    best = meta.where(meta.any(nans, (-1,)), last_nan, meta.argmax(values, -1))
    all_places = meta.broadcast_to(meta.array(places, device=x.device), values.shape)
    indices = _masked(meta.gather(all_places, -1, meta.expand_dims(best, (-1,))), exists, -1)
    return meta.max(values, (-1,)), meta.squeeze(indices, (-1,))


def _maximum_dx(dy: Tensor, indices: Tensor, shape: Sequence[int], *_: Any) -> Any:
    return _placed(meta.where(indices < 0, 0, dy), meta.maximum(indices, 0), shape)


def _mean(x: Tensor, axes: _Axes, include_pad: bool) -> Any:
    places, exist = _elements(axes)
    total = meta.sum(_masked(_picked(x, places), exist, 0), (-1,), True)
    counts = meta.maximum(_counts(axes, include_pad, total), 1)
    return meta.squeeze(meta.trunc_divide(total, counts) if is_int(x.dtype) else total / counts, (-1,))


def _mean_dx(dy: Tensor, shape: Sequence[int], axes: _Axes, include_pad: bool) -> Any:
    places, exist = _elements(axes)
    share = meta.expand_dims(dy, (-1,)) / _counts(axes, include_pad, dy)
    share = _masked(meta.broadcast_to(share, (*dy.shape, places.shape[-1])), exist, 0)
    return _placed(share, meta.broadcast_to(meta.array(places, device=dy.device), share.shape), shape)


def _regular(shape: Sequence[int], *window: Any) -> tuple[_Axes, bool]:
    """The windows along each axis, and the last argument: of means, whether padding counts."""
    return windows.pool_windows(shape[2:], *window[:5]), window[-1]


def _adapted(shape: Sequence[int], size: Sequence[int]) -> tuple[_Axes, bool]:
    return windows.adaptive_pool_windows(shape[2:], windows.per_axis("size", size, len(shape) - 2)), False


def _enter(kind: str, axes_of: Callable[..., tuple[_Axes, bool]]) -> None:
    def with_indices(x: Tensor, *window: Any) -> tuple[Any, Any]:
        return _maximum(x, axes_of(x.shape, *window)[0])

    def largest(x: Tensor, *window: Any) -> Any:
        return with_indices(x, *window)[0]

    def mean(x: Tensor, *window: Any) -> Any:
        return _mean(x, *axes_of(x.shape, *window))

    def mean_dx(dy: Tensor, shape: Sequence[int], *window: Any) -> Any:
        return _mean_dx(dy, shape, *axes_of(shape, *(window or (dy.shape[2:],))))

    functions = {"max_pool{}d": largest, "max_pool{}d_with_indices": with_indices, "max_pool{}d_dx": _maximum_dx,
                 "avg_pool{}d": mean, "avg_pool{}d_dx": mean_dx}  # fmt: skip
    for rank in (1, 2, 3):
        decompose({kind + name.format(rank): function for name, function in functions.items()})


_enter("", _regular)
_enter("adaptive_", _adapted)
