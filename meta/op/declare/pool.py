"""Declarations of pooling and its backward operators, for one, two and three spatial axes."""

from __future__ import annotations

from meta.dim import Shape, is_static
from meta.ir.type import TensorType
from meta.op import rules, window
from meta.op.registry import declare
from meta.schema import pool as schema

_Ints = tuple[int, ...]


def _spatial(rank: int, shape: Shape) -> tuple[int, ...]:
    """The spatial part of an input's shape. Raises TypeInferenceError unless it is known and not empty."""
    rules.require(
        len(shape) == rank + 2,
        f"'x' has shape {rules.show(shape)}",
        f"rank {rank + 2}: (batch, channels, *spatial)",
    )
    spatial = shape[2:]
    rules.require(is_static(spatial), f"'x' has the symbolic spatial shape {rules.show(spatial)}", "static sizes")
    rules.require(0 not in shape[1:], f"'x' has shape {rules.show(shape)}", "nothing but the batch may be empty")
    return tuple(map(int, spatial))


def _pooled(
    rank: int, shape: Shape, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
) -> Shape:
    windows = window.pool_windows(_spatial(rank, shape), kernel, stride, padding, dilation, ceil_mode)
    return (*shape[:2], *(axis.count for axis in windows))


def _adapted(rank: int, shape: Shape, size: _Ints) -> Shape:
    _spatial(rank, shape)
    return (*shape[:2], *window.per_axis("size", size, rank))


def _numeric(x: TensorType) -> None:
    rules.require(x.dtype != "bool", "'x' has dtype bool", "a numeric dtype", 'cast it: x.cast("int32")')


def _alike(**types: TensorType) -> None:
    rules.require_same_dtype(**types)
    rules.same_device(*types.values())


def _declare_windowed(rank: int) -> None:
    largest, mean = f"max_pool{rank}d", f"avg_pool{rank}d"

    @declare(largest, schema=schema.max_pool(rank), pattern="out_ewise_fusable")
    def max_pool(
        x: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """The largest element of each window; NaN if one is. Half precisions, floats and integers."""
        _numeric(x)
        return x.with_shape(_pooled(rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

    @declare(f"{largest}_dx", schema=schema.max_pool_dx(rank), pattern="out_ewise_fusable")
    def max_pool_dx(
        x: TensorType, dy: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """Gradient of max pooling: every dy goes to the first of the largest elements of its window."""
        rules.require_float("dy", dy)
        _alike(x=x, dy=dy)
        forward = x.with_shape(_pooled(rank, x.shape, kernel, stride, padding, dilation, ceil_mode))
        rules.require_same_shape(y=forward, dy=dy)
        return x

    @declare(f"{largest}_at", schema=schema.max_pool_at(rank), pattern="out_ewise_fusable")
    def max_pool_at(
        x: TensorType, v: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """The elements of v at the places where x has the largest elements of its windows (the first of equals)."""
        _numeric(x)
        _alike(x=x, v=v)
        rules.require_same_shape(x=x, v=v)
        return v.with_shape(_pooled(rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

    @declare(mean, schema=schema.avg_pool(rank), pattern="out_ewise_fusable")
    def avg_pool(
        x: TensorType,
        kernel: _Ints,
        stride: _Ints,
        padding: _Ints,
        dilation: _Ints,
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> TensorType:
        """The mean of each window. Of a window that `ceil_mode` keeps, only what is inside x and its padding counts.
        Half precisions accumulate in float32."""
        rules.require_float("x", x)
        return x.with_shape(_pooled(rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

    @declare(f"{mean}_dx", schema=schema.avg_pool_dx(rank), pattern="out_ewise_fusable")
    def avg_pool_dx(
        dy: TensorType,
        shape: Shape,
        kernel: _Ints,
        stride: _Ints,
        padding: _Ints,
        dilation: _Ints,
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> TensorType:
        """Gradient of average pooling: every dy in equal parts to the elements of its window."""
        rules.require_float("dy", dy)
        forward = dy.with_shape(_pooled(rank, shape, kernel, stride, padding, dilation, ceil_mode))
        rules.require_same_shape(y=forward, dy=dy)
        return dy.with_shape(shape)


def _declare_adaptive(rank: int) -> None:
    largest, mean = f"adaptive_max_pool{rank}d", f"adaptive_avg_pool{rank}d"

    @declare(largest, schema=schema.adaptive_pool, pattern="out_ewise_fusable")
    def max_pool(x: TensorType, size: _Ints) -> TensorType:
        """Max pooling to a given size: window i goes from floor(i * n / size) up to ceil((i + 1) * n / size), of n
        elements along the axis. Size 1 is global pooling."""
        _numeric(x)
        return x.with_shape(_adapted(rank, x.shape, size))

    @declare(f"{largest}_dx", schema=schema.adaptive_max_pool_dx, pattern="out_ewise_fusable")
    def max_pool_dx(x: TensorType, dy: TensorType) -> TensorType:
        """Gradient of adaptive max pooling."""
        rules.require_float("dy", dy)
        _alike(x=x, dy=dy)
        rules.require_rank("dy", dy, rank + 2)
        rules.require_same_shape(y=x.with_shape(_adapted(rank, x.shape, _spatial(rank, dy.shape))), dy=dy)
        return x

    @declare(f"{largest}_at", schema=schema.adaptive_max_pool_at, pattern="out_ewise_fusable")
    def max_pool_at(x: TensorType, v: TensorType, size: _Ints) -> TensorType:
        """The elements of v at the places where x has the largest elements of its windows (the first of equals)."""
        _numeric(x)
        _alike(x=x, v=v)
        rules.require_same_shape(x=x, v=v)
        return v.with_shape(_adapted(rank, x.shape, size))

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
