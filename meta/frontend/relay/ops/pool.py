"""Pooling and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.dtype import is_float
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.tensor_layout import SPATIAL_LAYOUTS, convert_layout, permuted, spatial_rank

_MAX = {1: meta.max_pool1d, 2: meta.max_pool2d, 3: meta.max_pool3d}
_AVG = {1: meta.avg_pool1d, 2: meta.avg_pool2d, 3: meta.avg_pool3d}
_MAX_ADAPTIVE = {1: meta.adaptive_max_pool1d, 2: meta.adaptive_max_pool2d, 3: meta.adaptive_max_pool3d}
_AVG_ADAPTIVE = {1: meta.adaptive_avg_pool1d, 2: meta.adaptive_avg_pool2d, 3: meta.adaptive_avg_pool3d}
_Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""kernel, stride, padding and dilation: ints by spatial axis, the padding before each axis and then after each."""


def _windows(call: OpCall, spatial: tuple[int, ...]) -> _Window:
    """kernel, stride, padding and dilation of a pooling of a tensor with these spatial sizes.

    With ceil_mode, Relay rounds the number of windows up by padding more at the end."""
    rank = len(spatial)

    def each(name: str, default: int) -> tuple[int, ...]:
        sizes = call.sizes(name, (default,))
        return sizes * rank if len(sizes) == 1 else sizes

    kernel = each("pool_size", 1)
    stride, dilation = each("strides", 1), each("dilation", 1)
    padding = _padding(call, rank)
    before, after = padding[:rank], list(padding[rank:])
    if call.flag("ceil_mode"):
        for i, size in enumerate(spatial):
            span = (kernel[i] - 1) * dilation[i] + 1
            count = (size + before[i] + after[i] - span + stride[i] - 1) // stride[i]
            after[i] = max(after[i], count * stride[i] + span - size - before[i])
    return kernel, stride, (*before, *after), dilation


def _padding(call: OpCall, rank: int) -> tuple[int, ...]:
    """The padding before each spatial axis, then that after each."""
    padding = call.sizes("padding", (0,))
    return padding * (2 * rank) if len(padding) == 1 else padding * 2 if len(padding) == rank else padding


def _padded(
    x: Tensor, padding: tuple[int, ...], kernel: Any, dilation: Any, value: float
) -> tuple[Any, tuple[int, ...]]:
    """x and the padding left to the operator. Operators reject windows inside the padding; then x is padded first."""
    rank = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if all(max(padding[i], padding[rank + i]) < spans[i] for i in range(rank)):
        return x, padding
    width = [0, 0, 0, 0, *(v for i in range(rank) for v in (padding[i], padding[rank + i]))]
    return meta.pad(x, tuple(width), value), (0,) * (2 * rank)


@converter("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def max_pool(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    plain = SPATIAL_LAYOUTS[spatial_rank(call)]
    layout = call.text("layout", plain) or plain
    x = convert_layout(call, x, layout, plain)
    kernel, stride, padding, dilation = _windows(call, x.shape[2:])
    lowest = -np.inf if is_float(x.dtype) else int(np.iinfo(x.dtype).min)
    x, padding = _padded(x, padding, kernel, dilation, lowest)
    y = _MAX[spatial_rank(call)](x, kernel, stride, padding, dilation, False)
    return convert_layout(call, y, plain, call.text("out_layout") or layout)


@converter("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def avg_pool(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    plain = SPATIAL_LAYOUTS[spatial_rank(call)]
    layout = call.text("layout", plain) or plain
    x = convert_layout(call, x, layout, plain)
    y = averaged(call, x)
    return convert_layout(call, y, plain, call.text("out_layout") or layout)


def averaged(call: OpCall, x: Any) -> Any:
    """The averages of the windows of x, whose spatial axes are the last. Averages of integers are truncated quotients
    of sums, which 64-bit floats represent exactly."""
    rank = x.ndim - 2
    kernel, stride, padding, dilation = _windows(call, x.shape[2:])
    include = call.flag("count_include_pad")
    padded, rest = _padded(x, padding, kernel, dilation, 0.0)
    size = int(np.prod(kernel))
    counts = np.asarray(size)
    if not include or padding != _padding(call, rank):
        counts = _counts(call, x.shape[2:], (kernel, stride, padding, dilation))
    if is_float(x.dtype):
        if not include and padded is x and (counts > 0).all():
            return _AVG[rank](x, kernel, stride, padding, dilation, False, False)
        y = _AVG[rank](padded, kernel, stride, rest, dilation, False, True)
        # A window without elements is the quotient of two zeros.
        with np.errstate(divide="ignore"):
            return y if (counts == size).all() else meta.multiply(y, constant((size / counts).astype(x.dtype)))
    if (counts <= 0).any():
        call.refuse("a window without elements in an average of integers", "windows that begin inside the padding")
    means = _AVG[rank](meta.cast(padded, "float64"), kernel, stride, rest, dilation, False, True)
    total = meta.cast(meta.round(meta.multiply(means, float(size))), "int64")
    return meta.cast(meta.trunc_divide(total, constant(counts.astype("int64"))), x.dtype)


def _counts(call: OpCall, spatial: tuple[int, ...], window: _Window) -> np.ndarray[Any, Any]:
    """The divisor of each window: the elements inside x, at least 1; with count_include_pad those inside x and the
    padding of the attributes, to which ceil_mode adds more. It is 0 or negative for a window after those, whose sum is
    0: the quotient is NaN or 0."""
    kernel, stride, padding, dilation = window
    rank, pads, include = len(kernel), _padding(call, len(kernel)), call.flag("count_include_pad")
    call.check_size(*spatial)
    total: np.ndarray[Any, Any] = np.ones((), "int64")
    for i, size in enumerate(spatial):
        span = (kernel[i] - 1) * dilation[i] + 1
        windows = (size + padding[i] + padding[rank + i] - span) // stride[i] + 1
        first = np.arange(windows) * stride[i] - padding[i]
        end = size + pads[rank + i] if include else size
        last = np.minimum(first + (kernel[i] - 1) * dilation[i], end - 1)
        skipped = 0 if include else np.maximum(-(first // dilation[i]), 0)
        steps = np.trunc((last - first - dilation[i] * skipped) / dilation[i]).astype("int64")
        total = total[..., None] * (steps + 1)
    return total if include else np.maximum(total, 1)


@converter("nn.global_avg_pool1d", "nn.global_avg_pool2d", "nn.global_avg_pool3d", "nn.global_max_pool1d",
           "nn.global_max_pool2d", "nn.global_max_pool3d")  # fmt: skip
def global_pool(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    plain = SPATIAL_LAYOUTS[spatial_rank(call)]
    layout = call.text("layout", plain) or plain
    if len(layout) != x.ndim:
        call.refuse(f"layout {layout!r} for rank {x.ndim}", f"a permutation of {plain!r}")
    axes = tuple(i for i, c in enumerate(layout) if c not in "NC")
    if "max" in call.name:
        y = meta.max(x, axes, True)
    elif is_float(x.dtype):
        y = meta.mean(x, axes, True)
    else:
        y = meta.cast(meta.trunc_divide(meta.sum(x, axes, True), int(product(x.shape[a] for a in axes))), x.dtype)
    return convert_layout(call, y, layout, call.text("out_layout") or layout)


@converter("contrib.adaptive_avg_pool2d", "contrib.adaptive_max_pool2d",
           *(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))  # fmt: skip
def adaptive_pool(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    rank = spatial_rank(call)
    plain = SPATIAL_LAYOUTS[rank]
    layout = call.text("layout", plain) or plain
    x = convert_layout(call, x, layout, plain)
    size = call.axes("output_size") or x.shape[2:]
    size = size * rank if len(size) == 1 else size
    if "max" in call.name:
        y = _MAX_ADAPTIVE[rank](x, size)
    elif is_float(x.dtype):
        y = _AVG_ADAPTIVE[rank](x, size)
    else:
        call.check_size(*size)
        count = constant(_bin_sizes(x.shape[2:], size))
        total = meta.round(
            meta.multiply(_AVG_ADAPTIVE[rank](meta.cast(x, "float64"), size), meta.cast(count, "float64"))
        )
        y = meta.cast(meta.trunc_divide(meta.cast(total, "int64"), count), x.dtype)
    return convert_layout(call, y, plain, call.text("out_layout") or layout)


def _bin_sizes(spatial: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The number of elements in each bin of an adaptive pooling."""
    total: np.ndarray[Any, Any] = np.ones((), "int64")
    for old, new in zip(spatial, size, strict=True):
        index = np.arange(new)
        total = total[..., None] * (-((-(index + 1) * old) // new) - index * old // new)
    return total


@converter("nn.max_pool2d_grad")
def max_pool_grad(call: OpCall) -> Any:
    dy, x, layout, window = _gradient(call)
    call.flag("ceil_mode")
    kernel, stride, padding, dilation = window
    _, indices = meta.max_pool2d_with_indices(x, kernel, stride, padding, dilation, False)
    dx = meta.max_pool2d_dx(dy, indices, x.shape, kernel, stride, padding, dilation, False)
    return permuted(dx, "NCHW", layout)


@converter("nn.avg_pool2d_grad")
def avg_pool_grad(call: OpCall) -> Any:
    dy, x, layout, window = _gradient(call)
    kernel, stride, padding, dilation = window
    dx = meta.avg_pool2d_dx(dy, x.shape, kernel, stride, padding, dilation, False, call.flag("count_include_pad"))
    return permuted(dx, "NCHW", layout)


def _gradient(call: OpCall) -> tuple[Any, Any, str, Any]:
    dy, x = call.tensors(2)
    layout = call.only("layout", "NCHW", "NHWC")
    call.get("out_layout")
    x, dy = permuted(x, layout, "NCHW"), permuted(dy, layout, "NCHW")
    return dy, x, layout, _windows(call, x.shape[2:])
