"""Sampling images at given places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import ints, static
from meta.frontend.onnx.ops._windows import padded, window_of
from meta.frontend.onnx.ops.conv import biased
from meta.functional._checks import as_dtype

_MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}


@row("GridSample", since=16)
def grid_sample(
    node: Node, X: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Any:
    """grid: (batch, *places, spatial axes), the last spatial axis first."""
    if mode not in _MODES:
        refuse(node, f"mode is {mode!r}", "linear, nearest or cubic")
    places = meta.moveaxis(grid, -1, 1)
    return meta.grid_sample(X, places, _MODES[mode], padding_mode, bool(align_corners))  # type: ignore[arg-type]


@row("AffineGrid", since=20, constants=("size",))
def affine_grid(node: Node, theta: Tensor, size: Any, *, align_corners: int = 0) -> Any:
    """Positions (batch, *spatial, axes) to which an affine map takes the positions of the result."""
    return meta.moveaxis(meta.affine_grid(theta, ints(size)[2:], bool(align_corners)), 1, -1)


# --- regions ---------------------------------------------------------------------------------------------------------


@row("RoiAlign", since=16)
def roi_align(
    node: Node, X: Tensor, rois: Tensor, batch_indices: Tensor, *, output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0, mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:  # fmt: skip
    """Means or maxima of interpolated samples in the bins of regions. sampling_ratio 0: as many samples a bin as it has
    elements, rounded up, which needs the values of the regions.

    Maxima are taken over the weighted corners of all samples."""
    aligned = coordinate_transformation_mode == "half_pixel"
    if mode not in ("avg", "max"):
        refuse(node, f"mode is {mode!r}", "avg or max")
    corners = meta.subtract(meta.multiply(rois, spatial_scale), 0.5 if aligned else 0.0)
    x1, y1, x2, y2 = (meta.select(corners, 1, i) for i in range(4))
    images = meta.take(X, as_dtype(batch_indices, "int64"), 0)
    low_high = []
    for first, last, bins, size in ((y1, y2, output_height, X.shape[2]), (x1, x2, output_width, X.shape[3])):
        length = meta.subtract(last, first)
        length = length if aligned else meta.maximum(length, 1.0)
        low_high.append(_samples(node, first, length, bins, size, sampling_ratio))
    function = _mean_of_samples if mode == "avg" else _maximum_of_samples
    return function(images, *low_high)


@row("RoiAlign", since=10)
def roi_align_10(
    node: Node, X: Tensor, rois: Tensor, batch_indices: Tensor, *, output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0, mode: str = "avg",
) -> Any:  # fmt: skip
    return roi_align(
        node, X, rois, batch_indices, output_height=output_height, output_width=output_width,
        sampling_ratio=sampling_ratio, spatial_scale=spatial_scale, mode=mode,
        coordinate_transformation_mode="output_half_pixel",
    )  # fmt: skip


def _samples(node: Node, first: Any, length: Any, bins: int, size: int, ratio: int) -> tuple[Any, Any, Any]:
    """Weights of the elements below and above each sample, (regions, bins, samples, size), and the number of samples
    of each region. Samples beyond their number, or more than an element outside, weigh 0."""
    step = meta.divide(length, float(bins))
    if ratio > 0:
        most, count = ratio, meta.full_like(step, float(ratio))
    else:
        count = meta.ceil(step)
        values = node.constant(count, "the size of the regions")
        most = max(int(values.max()), 0) if values.size else 0
    index = meta.cast(meta.arange(0, max(most, 1)), step.dtype)
    lines = meta.expand_dims(count, (1, 2))
    offsets = meta.add(
        meta.expand_dims(meta.cast(meta.arange(0, bins), step.dtype), 1),
        meta.divide(meta.add(index, 0.5), meta.maximum(lines, 1.0)),
    )  # (regions, bins, samples)
    places = meta.add(meta.expand_dims(first, (1, 2)), meta.multiply(meta.expand_dims(step, (1, 2)), offsets))
    valid = meta.logical_and(
        meta.logical_and(meta.greater_equal(places, -1.0), meta.less_equal(places, float(size))),
        meta.less(index, lines),
    )
    clipped = meta.clip(places, 0.0, float(size - 1))
    below = meta.minimum(meta.floor(clipped), float(size - 1))
    above = meta.minimum(meta.add(below, 1.0), float(size - 1))
    share = meta.subtract(clipped, below)
    elements = meta.cast(meta.arange(0, size), step.dtype)
    zero = meta.zeros_like(share)
    low_share = meta.where(valid, meta.subtract(1.0, share), zero)
    high_share = meta.where(valid, share, zero)
    low, high = (
        meta.multiply(meta.cast(meta.equal(meta.expand_dims(p, 3), elements), step.dtype), meta.expand_dims(w, 3))
        for p, w in ((below, low_share), (above, high_share))
    )
    return low, high, count


def _mean_of_samples(images: Any, rows: tuple[Any, Any, Any], columns: tuple[Any, Any, Any]) -> Any:
    weights = [
        meta.expand_dims(
            meta.divide(meta.sum(meta.add(low, high), 2), meta.maximum(meta.expand_dims(n, (1, 2)), 1.0)), 1
        )
        for low, high, n in (rows, columns)
    ]
    return meta.matmul(meta.matmul(weights[0], images), weights[1], transpose_b=True)


def _maximum_of_samples(images: Any, rows: tuple[Any, Any, Any], columns: tuple[Any, Any, Any]) -> Any:
    n, bins, samples, _ = rows[0].shape
    other_bins, other_samples = columns[0].shape[1:3]
    best: Any = None
    for row_weights in rows[:2]:
        above = meta.matmul(meta.reshape(row_weights, (n, 1, bins * samples, -1)), images)
        for column_weights in columns[:2]:
            right = meta.reshape(column_weights, (n, 1, other_bins * other_samples, -1))
            corner = meta.matmul(above, right, transpose_b=True)
            best = corner if best is None else meta.maximum(best, corner)
    split = meta.reshape(best, (n, images.shape[1], bins, samples, other_bins, other_samples))
    return meta.max(split, (3, 5))


# --- convolutions with offsets ---------------------------------------------------------------------------------------


@row("DeformConv", since=19)
def deform_conv(
    node: Node, X: Any, W: Any, offset: Tensor, B: Any = None, mask: Tensor | None = None, *,
    kernel_shape: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, group: int = 1, offset_group: int = 1,
) -> Any:  # fmt: skip
    """A convolution whose taps are moved by offsets and weighted by a mask (J. Dai et al., 2017; X. Zhu et al., 2018).

    offset: (batch, offset groups * taps * axes, *places).  mask: (batch, offset groups * taps, *places)."""
    spatial = static("DeformConv", X)[2:]
    window = window_of("DeformConv", spatial, W.shape[2:], strides, dilations, pads, "NOTSET")
    rank, taps = window.rank, int(np.prod(window.kernel))
    if rank not in (2, 3):
        refuse(node, f"an input of {X.ndim} axes", "4 or 5")
    places = tuple(offset.shape[2:])
    base = _tap_positions(window, places)  # (taps, axes, *places)
    shape = (X.shape[0] * offset_group, taps, rank, *places)
    positions = meta.add(meta.reshape(offset, shape), meta.array(base.astype(str(X.dtype))))
    extended = padded(X, ((0, 1),) * rank)  # a size of 1 has no scale
    scale = np.array([2.0 / n for n in spatial], str(X.dtype)).reshape(rank, *(1,) * rank)
    grid = meta.flip(meta.subtract(meta.multiply(positions, meta.array(scale)), 1.0), 2)
    grid = meta.moveaxis(grid, 2, 1)  # (groups, axes, taps, *places)
    flat = meta.reshape(grid, (shape[0], rank, taps * places[0], *places[1:]))
    channels = X.shape[1] // offset_group
    parts = meta.reshape(extended, (shape[0], channels, *extended.shape[2:]))
    columns = meta.reshape(
        meta.grid_sample(parts, flat, "bilinear", "zeros", True), (shape[0], channels, taps, *places)
    )
    if mask is not None:
        columns = meta.multiply(columns, meta.reshape(mask, (shape[0], 1, taps, *places)))
    count = product(places)
    columns = meta.reshape(columns, (X.shape[0], group, X.shape[1] // group * taps, count))
    weights = meta.reshape(W, (group, W.shape[0] // group, -1))
    return biased(meta.reshape(meta.matmul(weights, columns), (X.shape[0], W.shape[0], *places)), B)


def _tap_positions(window: Any, places: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Positions of the taps in the input without offsets."""
    axes: list[Any] = []
    rank = window.rank
    for i in range(rank):
        tap = np.arange(window.kernel[i]) * window.dilations[i]
        place = np.arange(places[i]) * window.strides[i] - window.pads[i][0]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = window.kernel[i], places[i]
        along = (tap[:, None] + place[None, :]).reshape(shape)
        axes.append(np.broadcast_to(along, (*window.kernel, *places)).reshape(-1, *places))
    return np.stack(axes, 1)
