"""Declarations of pooling and its backward operators, for one, two and three spatial axes."""

from __future__ import annotations

from meta.ir.dim import Shape, is_static
from meta.ir.type import TensorType
from meta.op import rules, window
from meta.op.registry import declare
from meta.schema import pool as schema

_Ints = tuple[int, ...]


def _spatial(op: str, rank: int, shape: Shape) -> tuple[int, ...]:
    """The spatial part of an input's shape. Raises TypeInferenceError unless it is known and not empty."""
    rules.require(
        op,
        len(shape) == rank + 2,
        f"'x' has shape {rules.show(shape)}",
        f"rank {rank + 2}: (batch, channels, *spatial)",
    )
    spatial = shape[2:]
    rules.require(op, is_static(spatial), f"'x' has the symbolic spatial shape {rules.show(spatial)}", "static sizes")
    rules.require(op, 0 not in shape[1:], f"'x' has shape {rules.show(shape)}", "nothing but the batch may be empty")
    return tuple(map(int, spatial))


def _pooled(
    op: str, rank: int, shape: Shape, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
) -> Shape:
    windows = window.pool_windows(op, _spatial(op, rank, shape), kernel, stride, padding, dilation, ceil_mode)
    return (*shape[:2], *(axis.count for axis in windows))


def _adapted(op: str, rank: int, shape: Shape, size: _Ints) -> Shape:
    _spatial(op, rank, shape)
    return (*shape[:2], *window.per_axis(op, "size", size, rank))


def _numeric(op: str, x: TensorType) -> None:
    rules.require(op, x.dtype != "bool", "'x' has dtype bool", "a numeric dtype", 'cast it: x.cast("int32")')


def _alike(op: str, **types: TensorType) -> None:
    rules.require_same_dtype(op, **types)
    rules.same_device(op, *types.values())


def _declare_windowed(rank: int) -> None:
    largest, mean = f"max_pool{rank}d", f"avg_pool{rank}d"

    @declare(
        largest,
        schema=schema.max_pool(rank),
        pattern="out_ewise_fusable",
        aten=largest,
        onnx="MaxPool",
        relay=f"nn.{largest}",
    )
    def max_pool(
        x: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """The largest element of each window; NaN if one is. Half precisions, floats and integers."""
        _numeric(largest, x)
        return x.with_shape(_pooled(largest, rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

    @declare(f"{largest}_dx", schema=schema.max_pool_dx(rank), pattern="out_ewise_fusable")
    def max_pool_dx(
        x: TensorType, dy: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """Gradient of max pooling: every dy goes to the first of the largest elements of its window."""
        op = f"{largest}_dx"
        rules.require_float(op, "dy", dy)
        _alike(op, x=x, dy=dy)
        forward = x.with_shape(_pooled(op, rank, x.shape, kernel, stride, padding, dilation, ceil_mode))
        rules.require_same_shape(op, y=forward, dy=dy)
        return x

    @declare(f"{largest}_at", schema=schema.max_pool_at(rank), pattern="out_ewise_fusable")
    def max_pool_at(
        x: TensorType, v: TensorType, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, ceil_mode: bool
    ) -> TensorType:
        """The elements of v at the places where x has the largest elements of its windows (the first of equals)."""
        op = f"{largest}_at"
        _numeric(op, x)
        _alike(op, x=x, v=v)
        rules.require_same_shape(op, x=x, v=v)
        return v.with_shape(_pooled(op, rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

    @declare(
        mean,
        schema=schema.avg_pool(rank),
        pattern="out_ewise_fusable",
        aten=mean,
        onnx="AveragePool",
        relay=f"nn.{mean}",
    )
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
        rules.require_float(mean, "x", x)
        return x.with_shape(_pooled(mean, rank, x.shape, kernel, stride, padding, dilation, ceil_mode))

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
        op = f"{mean}_dx"
        rules.require_float(op, "dy", dy)
        forward = dy.with_shape(_pooled(op, rank, shape, kernel, stride, padding, dilation, ceil_mode))
        rules.require_same_shape(op, y=forward, dy=dy)
        return dy.with_shape(shape)


def _declare_adaptive(rank: int) -> None:
    largest, mean = f"adaptive_max_pool{rank}d", f"adaptive_avg_pool{rank}d"

    @declare(largest, schema=schema.adaptive_pool, pattern="out_ewise_fusable", aten=largest, relay=f"nn.{largest}")
    def max_pool(x: TensorType, size: _Ints) -> TensorType:
        """Max pooling to a given size: window i goes from floor(i * n / size) up to ceil((i + 1) * n / size), of n
        elements along the axis. Size 1 is global pooling."""
        _numeric(largest, x)
        return x.with_shape(_adapted(largest, rank, x.shape, size))

    @declare(f"{largest}_dx", schema=schema.adaptive_max_pool_dx, pattern="out_ewise_fusable")
    def max_pool_dx(x: TensorType, dy: TensorType) -> TensorType:
        """Gradient of adaptive max pooling."""
        op = f"{largest}_dx"
        rules.require_float(op, "dy", dy)
        _alike(op, x=x, dy=dy)
        rules.require_rank(op, "dy", dy, rank + 2)
        rules.require_same_shape(op, y=x.with_shape(_adapted(op, rank, x.shape, _spatial(op, rank, dy.shape))), dy=dy)
        return x

    @declare(f"{largest}_at", schema=schema.adaptive_max_pool_at, pattern="out_ewise_fusable")
    def max_pool_at(x: TensorType, v: TensorType, size: _Ints) -> TensorType:
        """The elements of v at the places where x has the largest elements of its windows (the first of equals)."""
        op = f"{largest}_at"
        _numeric(op, x)
        _alike(op, x=x, v=v)
        rules.require_same_shape(op, x=x, v=v)
        return v.with_shape(_adapted(op, rank, x.shape, size))

    @declare(mean, schema=schema.adaptive_pool, pattern="out_ewise_fusable", aten=mean, relay=f"nn.{mean}")
    def avg_pool(x: TensorType, size: _Ints) -> TensorType:
        """Average pooling to a given size: window i goes from floor(i * n / size) up to ceil((i + 1) * n / size), of n
        elements along the axis. Size 1 is global pooling."""
        rules.require_float(mean, "x", x)
        return x.with_shape(_adapted(mean, rank, x.shape, size))

    @declare(f"{mean}_dx", schema=schema.adaptive_avg_pool_dx, pattern="out_ewise_fusable")
    def avg_pool_dx(dy: TensorType, shape: Shape) -> TensorType:
        """Gradient of adaptive average pooling."""
        op = f"{mean}_dx"
        rules.require_float(op, "dy", dy)
        rules.require_rank(op, "dy", dy, rank + 2)
        forward = dy.with_shape(_adapted(op, rank, shape, _spatial(op, rank, dy.shape)))
        rules.require_same_shape(op, y=forward, dy=dy)
        return dy.with_shape(shape)


for _rank in (1, 2, 3):
    _declare_windowed(_rank)
    _declare_adaptive(_rank)
