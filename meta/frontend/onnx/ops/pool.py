"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.frontend.onnx.ops._row import Node, refuse, row, rows
from meta.frontend.onnx.ops._values import ints, static
from meta.frontend.onnx.ops._windows import Window, padded, window_of
from meta.frontend.onnx.ops.conv import spatial_rank
from meta.functional._checks import as_dtype
from meta.functional.image import roi_pool

_AVERAGE = (meta.avg_pool1d, meta.avg_pool2d, meta.avg_pool3d)
_MAXIMUM = (meta.max_pool1d, meta.max_pool2d, meta.max_pool3d)
_PLACES = (meta.max_pool1d_with_indices, meta.max_pool2d_with_indices, meta.max_pool3d_with_indices)


def _shape(node: Node, window: Window, ceil_mode: int, auto_pad: str) -> tuple[Any, ...]:
    """The operators' arguments. Pads that auto_pad gives make whole windows."""
    if any(p < 0 for pair in window.pads for p in pair):
        refuse(node, f"pads {window.pads} are negative", "numbers from 0 on")
    ceil = bool(ceil_mode) and auto_pad in ("", "NOTSET")
    return window.kernel, window.strides, window.padding, window.dilations, ceil


@row("AveragePool")
def average_pool(
    node: Node, X: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, count_include_pad: int = 0,
) -> Any:  # fmt: skip
    window = window_of("AveragePool", X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    function = _AVERAGE[spatial_rank(node, X) - 1]
    shape = _shape(node, window, ceil_mode, auto_pad)
    return function(X, *shape, count_include_pad=bool(count_include_pad))


@row("LpPool")
def lp_pool(
    node: Node, X: Any, *, kernel_shape: Any, p: int = 2, strides: Any = None, pads: Any = None,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None,
) -> Any:  # fmt: skip
    """(sum of |x| ** p) ** (1 / p); pads are zeros."""
    window = window_of("LpPool", X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    kernel, strides, padding, dilations, ceil = _shape(node, window, ceil_mode, auto_pad)
    rank = spatial_rank(node, X)
    if ceil:  # windows past the end have fewer elements: a sum by a convolution counts them as zeros
        sizes = static("LpPool", X)[2:]
        more = [
            -(n + a + b - e) % s for n, (a, b), e, s in zip(sizes, window.pads, window.extents, strides, strict=True)
        ]
        padding = (*window.begins, *(b + m for (_, b), m in zip(window.pads, more, strict=True)))
    means = _AVERAGE[rank - 1](_power(X, p), kernel, strides, padding, dilations, False, True)
    return _root(meta.multiply(means, float(np.prod(kernel))), p)


def _power(x: Tensor, p: int) -> Any:
    return meta.abs(x) if p == 1 else meta.multiply(x, x) if p == 2 else meta.power(meta.abs(x), float(p))


def _root(x: Tensor, p: int) -> Any:
    return x if p == 1 else meta.sqrt(x) if p == 2 else meta.power(x, 1.0 / p)


# --- maxima ----------------------------------------------------------------------------------------------------------


@row("MaxPool")
def max_pool(
    node: Node, X: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, storage_order: int = 0,
) -> Any:  # fmt: skip
    """Maxima of windows, and where they are in the flattened input, counted in rows or columns of each image."""
    rank = spatial_rank(node, X)
    window = window_of("MaxPool", X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    shape = _shape(node, window, ceil_mode, auto_pad)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return _MAXIMUM[rank - 1](X, *shape)
    values, places = _PLACES[rank - 1](X, *shape)
    return values, _flat_places(places, X, bool(storage_order))


def _flat_places(places: Any, x: Tensor, by_columns: bool) -> Any:
    """Positions in the whole flattened input of positions in its images."""
    flat, sizes = as_dtype(places, "int64"), tuple(x.shape[2:])
    if by_columns:
        flat = _by_columns(flat, sizes)
    plane: Any = product(sizes)
    first = meta.multiply(meta.arange(0, x.shape[0] * x.shape[1]), plane)
    return meta.add(flat, meta.reshape(first, (*x.shape[:2], *(1,) * len(sizes))))


def _by_columns(flat: Any, sizes: tuple[Any, ...]) -> Any:
    """Positions in images whose first axis is contiguous, of positions in images whose last one is."""
    total = meta.zeros_like(flat)
    for i, n in reversed(list(enumerate(sizes))):
        total = meta.add(total, meta.multiply(meta.mod(flat, n), product(sizes[:i])))
        flat = meta.floor_divide(flat, n)
    return total


@row("MaxUnpool", since=9, constants=("output_shape",))
def max_unpool(
    node: Node, X: Tensor, I: Tensor, output_shape: Any = None, *, kernel_shape: Sequence[int],  # noqa: E741
    strides: Sequence[int] | None = None, pads: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """Values at their positions among zeros. Positions count in the shape that the window gives; a given shape is
    filled up with zeros at the end."""
    window = window_of("MaxUnpool", X.shape[2:], kernel_shape, strides, None, pads, "NOTSET")
    inner = [
        (n - 1) * s - a - b + k
        for n, s, (a, b), k in zip(X.shape[2:], window.strides, window.pads, window.kernel, strict=True)
    ]
    shape = (*X.shape[:2], *inner)
    zeros = meta.zeros((product(shape),), X.dtype, X.device)
    flat = meta.scatter_elements(zeros, 0, meta.reshape(I, (-1,)), meta.reshape(X, (-1,)), "update")
    out = meta.reshape(flat, shape)
    if output_shape is None:
        return out
    more = tuple((0, new - old) for old, new in zip(shape, ints(output_shape), strict=True))
    return padded(out, more[2:])


# --- whole images ----------------------------------------------------------------------------------------------------


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


rows({
    "GlobalAveragePool": lambda node, X: meta.mean(X, _spatial(X), True) if X.ndim > 2 else X,
    "GlobalLpPool": lambda node, X, *, p=2: _root(meta.sum(_power(X, int(p)), _spatial(X), True), int(p)),
    "GlobalMaxPool": lambda node, X: meta.max(X, _spatial(X), True) if X.ndim > 2 else X,
})  # fmt: skip


# --- columns of windows ----------------------------------------------------------------------------------------------


@row("Col2Im", since=18, constants=("image_shape", "block_shape"))
def col2im(
    node: Node, input: Tensor, image_shape: Any, block_shape: Any, *, strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """(batch, channels * block, windows) -> images, in which elements of overlapping windows are added."""
    image, block = ints(image_shape), ints(block_shape)
    window = window_of("Col2Im", image, block, strides, dilations, pads, "NOTSET")
    extended = [n + a + b for n, (a, b) in zip(image, window.pads, strict=True)]
    counts = [(n - e) // s + 1 for n, e, s in zip(extended, window.extents, window.strides, strict=True)]
    batch, channels = input.shape[0], input.shape[1] // int(np.prod(block))
    places = np.zeros((1,) * (2 * window.rank), "int64")
    for i, (k, c) in enumerate(zip(block, counts, strict=True)):
        along = np.arange(k)[:, None] * window.dilations[i] + np.arange(c)[None, :] * window.strides[i]
        shape = [1] * (2 * window.rank)
        shape[i], shape[window.rank + i] = k, c
        places = places * extended[i] + along.reshape(shape)
    total = int(np.prod(extended))
    flat = meta.reshape(input, (batch, channels, -1))
    index = meta.broadcast_to(meta.array(places.reshape(1, 1, -1)), flat.shape)
    zeros = meta.zeros((batch, channels, total), input.dtype, input.device)
    images = meta.reshape(meta.scatter_add(zeros, 2, index, flat), (batch, channels, *extended))
    return padded(images, [(-a, -b) for a, b in window.pads])


# --- boxes -----------------------------------------------------------------------------------------------------------


@row("MaxRoiPool")
def max_roi_pool(
    node: Node, X: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Any:
    """Maxima of the bins of boxes, whose corners are rounded to elements: (boxes, channels, height, width).

    rois: (boxes, 5): image, and corners x1, y1, x2, y2, which belong to the box."""
    return roi_pool(X, rois, pooled_shape, spatial_scale)
