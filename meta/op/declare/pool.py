"""Declarations of pooling and its backward operators, for one, two and three spatial axes."""

from __future__ import annotations

from math import prod
from typing import Any

from meta.dim import Shape, is_static
from meta.ir.type import TensorType, TupleType, tensor_type
from meta.op import rules, windows
from meta.op.positions import Positions
from meta.op.registry import declare
from meta.schema import pool as schema

_Ints = tuple[int, ...]


def _spatial(rank: int, shape: Shape) -> tuple[int, ...]:
    """The spatial part of an input's shape. Raises TypeInferenceError unless it is known and not empty."""
    rules.require_axes("x", shape, windows.axes(rank, "batch", "channels"))
    spatial = shape[2:]
    rules.require(is_static(spatial), f"'x' has the symbolic spatial shape {rules.show(spatial)}", "static sizes")
    rules.require(0 not in shape[1:], f"'x' has shape {rules.show(shape)}", "nothing but the batch may be empty")
    return tuple(map(int, spatial))


def _pooled(rank: int, shape: Shape, *window: Any) -> Shape:
    """window: kernel, stride, padding, dilation and ceil_mode."""
    return (*shape[:2], *(axis.count for axis in windows.pool_windows(_spatial(rank, shape), *window)))


def _adapted(rank: int, shape: Shape, size: _Ints) -> Shape:
    _spatial(rank, shape)
    return (*shape[:2], *windows.per_axis("size", size, rank))


def _numeric(x: TensorType) -> None:
    rules.require(x.dtype != "bool", "'x' has dtype bool", "a numeric dtype", 'cast it: x.cast("int32")')


def _with_indices(x: TensorType, shape: Shape) -> TupleType:
    """The types of the results of max pooling to `shape`, with indices into the spatial axes of x."""
    index = "int32" if prod(map(int, x.shape[2:])) < 1 << 31 else "int64"
    return TupleType((x.with_shape(shape), tensor_type(shape, index, x.device)))


def _scattered(dy: TensorType, indices: TensorType, shape: Shape, pooled: Shape) -> TensorType:
    """The type of the gradient with respect to an x of `shape` whose result has shape `pooled`."""
    rules.require_float("dy", dy)
    rules.require(indices.dtype in ("int32", "int64"), f"'indices' has dtype {indices.dtype}", "int32 or int64")
    rules.same_device(dy, indices)
    rules.require_same_shape(y=dy.with_shape(pooled), dy=dy)
    rules.require_same_shape(dy=dy, indices=indices)
    return dy.with_shape(shape)


def _places(dy: object, indices: object, *_: object, out: Any) -> Positions:
    """Flat indices into the spatial axes; -1 for windows without elements."""
    return Positions(1, (prod(out.shape[2:]),), ignored=-1)


def _declare_windowed(rank: int) -> None:
    largest, mean = f"max_pool{rank}d", f"avg_pool{rank}d"

    @declare(largest, schema=schema.max_pool(rank), pattern="out_ewise_fusable", recorded_as=f"{largest}_with_indices")
    def max_pool(x: TensorType, *window: Any) -> TensorType:
        """The largest element of each window; NaN if one is. Half precisions, floats and integers."""
        _numeric(x)
        return x.with_shape(_pooled(rank, x.shape, *window))

    @declare(
        f"{largest}_with_indices", schema=schema.max_pool(rank), pattern="out_ewise_fusable", outputs=("y", "indices")
    )
    def max_pool_with_indices(x: TensorType, *window: Any) -> TupleType:
        """Max pooling that also returns where the largest elements are: flat indices into the spatial axes of x, of
        int32 where that fits, else int64. Of equal elements the first, of several NaN the last; -1 for a window that
        has no element."""
        _numeric(x)
        return _with_indices(x, _pooled(rank, x.shape, *window))

    @declare(f"{largest}_dx", schema=schema.max_pool_dx(rank), pattern="out_ewise_fusable", positions=_places)
    def max_pool_dx(dy: TensorType, indices: TensorType, shape: Shape, *window: Any) -> TensorType:
        """Gradient of max pooling: every dy is added at the index that its window has."""
        return _scattered(dy, indices, shape, _pooled(rank, shape, *window))

    @declare(mean, schema=schema.avg_pool(rank), pattern="out_ewise_fusable")
    def avg_pool(x: TensorType, *window: Any) -> TensorType:
        """The mean of each window. Of a window that `ceil_mode` keeps, only what is inside x and its padding counts.
        Half precisions accumulate in float32, integers in 64 bits; means of integers are cut off towards zero, as torch
        does for int64."""
        _numeric(x)
        return x.with_shape(_pooled(rank, x.shape, *window[:-1]))

    @declare(f"{mean}_dx", schema=schema.avg_pool_dx(rank), pattern="out_ewise_fusable")
    def avg_pool_dx(dy: TensorType, shape: Shape, *window: Any) -> TensorType:
        """Gradient of average pooling: every dy in equal parts to the elements of its window."""
        rules.require_float("dy", dy)
        rules.require_same_shape(y=dy.with_shape(_pooled(rank, shape, *window[:-1])), dy=dy)
        return dy.with_shape(shape)


def _declare_adaptive(rank: int) -> None:
    largest, mean = f"adaptive_max_pool{rank}d", f"adaptive_avg_pool{rank}d"

    @declare(largest, schema=schema.adaptive_pool, pattern="out_ewise_fusable", recorded_as=f"{largest}_with_indices")
    def max_pool(x: TensorType, size: _Ints) -> TensorType:
        """Max pooling to a given size: window i goes from floor(i * n / size) up to ceil((i + 1) * n / size), of n
        elements along the axis. Size 1 is global pooling."""
        _numeric(x)
        return x.with_shape(_adapted(rank, x.shape, size))

    @declare(
        f"{largest}_with_indices", schema=schema.adaptive_pool, pattern="out_ewise_fusable", outputs=("y", "indices")
    )
    def max_pool_with_indices(x: TensorType, size: _Ints) -> TupleType:
        """Adaptive max pooling that also returns where the largest elements are: flat indices into the spatial axes of
        x, of int32 where that fits, else int64. Of equal elements the first, of several NaN the last."""
        _numeric(x)
        return _with_indices(x, _adapted(rank, x.shape, size))

    @declare(f"{largest}_dx", schema=schema.adaptive_max_pool_dx, pattern="out_ewise_fusable", positions=_places)
    def max_pool_dx(dy: TensorType, indices: TensorType, shape: Shape) -> TensorType:
        """Gradient of adaptive max pooling: every dy is added at the index that its window has."""
        rules.require_rank("dy", dy, rank + 2)
        return _scattered(dy, indices, shape, _adapted(rank, shape, _spatial(rank, dy.shape)))

    @declare(mean, schema=schema.adaptive_pool, pattern="out_ewise_fusable")
    def avg_pool(x: TensorType, size: _Ints) -> TensorType:
        """Average pooling to a given size: window i goes from floor(i * n / size) up to ceil((i + 1) * n / size), of n
        elements along the axis. Size 1 is global pooling."""
        rules.require_float("x", x)
        return x.with_shape(_adapted(rank, x.shape, size))

    @declare(f"{mean}_dx", schema=schema.adaptive_avg_pool_dx, pattern="out_ewise_fusable")
    def avg_pool_dx(dy: TensorType, shape: Shape) -> TensorType:
        """Gradient of adaptive average pooling."""
        rules.require_float("dy", dy)
        rules.require_rank("dy", dy, rank + 2)
        forward = dy.with_shape(_adapted(rank, shape, _spatial(rank, dy.shape)))
        rules.require_same_shape(y=forward, dy=dy)
        return dy.with_shape(shape)


for _rank in (1, 2, 3):
    _declare_windowed(_rank)
    _declare_adaptive(_rank)
