"""Sampling of images at computed places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Literal

import meta
from meta._generated.methods import T, Tensor
from meta.errors import ArgumentError
from meta.functional._checks import require, require_float, require_ranks
from meta.op.rules import show

__all__ = ["affine_grid", "grid_sample", "roi_align"]


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = True) -> Tensor:
    """The places (n, d, *size) that an affine map takes a grid of d axes, 2 or 3, to: theta (n, d, d + 1) times
    (x, y, 1), or (x, y, z, 1), coordinates from -1 to 1 of the last axis first. -1 and 1 are the centres of the
    outermost pixels (align_corners) or their outer edges. Raises TypeInferenceError for another shape or dtype of
    theta."""
    require_ranks("affine_grid", {"theta": theta}, {"theta": 3})
    require_float("affine_grid", theta, "theta")
    rank = theta.shape[1]
    fits = rank in (2, 3) and theta.shape[2] == rank + 1
    require("affine_grid", fits, f"'theta' has shape {show(theta.shape)}", "(n, 2, 3) or (n, 3, 4)")
    require("affine_grid", len(size) == rank, f"size is {tuple(size)}", "(height, width), for (n, 3, 4) also a depth")
    coordinates: list[Any] = []
    for axis, count in reversed(list(enumerate(size))):
        end = 0.0 if count == 1 else 1.0 if align_corners else (count - 1) / count
        line = meta.linspace(-end, end, count, theta.dtype, theta.device)
        column = meta.reshape(line, tuple(count if a == axis else 1 for a in range(rank)))
        coordinates.append(meta.broadcast_to(column, size))
    places = meta.reshape(meta.stack([*coordinates, meta.ones_like(coordinates[0])], 0), (rank + 1, -1))
    return meta.reshape(meta.matmul(theta, places), (theta.shape[0], rank, *size))


def grid_sample(
    x: T, grid: T, method: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros", align_corners: bool = True,
) -> T:  # fmt: skip
    """The image at given places, interpolated between the 2**d pixels around each (or the 4 x 4 of a plane, by cubic
    convolution with a = -0.75), or from the nearest.

    x: (n, c, *spatial); grid: (n, d, *places), coordinates from -1 to 1 of the last spatial axis first; the result is
    (n, c, *places). -1 and 1 are the centres of the outermost pixels (align_corners) or their outer edges. Places
    outside give 0, take the nearest pixel inside, or are mirrored. Places have gradients too (M. Jaderberg et al.,
    "Spatial Transformer Networks", 2015)."""
    spatial = tuple(int(d) for d in x.shape[2:])
    parts = meta.split(grid, len(spatial), 1)
    axes = [meta.squeeze(part, 1) for part in parts][::-1]
    moved = meta.moveaxis(x, 1, -1)
    if method == "bicubic":
        return meta.moveaxis(_bicubic(moved, axes, spatial, padding_mode, align_corners), -1, 1)
    coordinates = [_pixel(a, size, padding_mode, align_corners) for a, size in zip(axes, spatial, strict=True)]
    if method == "nearest":
        pixels = _pixels_at(moved, [meta.round(a) for a in coordinates], spatial, padding_mode)
        return meta.moveaxis(pixels, -1, 1)
    total = interpolated(coordinates, lambda corner: _pixels_at(moved, corner, spatial, padding_mode))
    return meta.moveaxis(total, -1, 1)


def interpolated(coordinates: Sequence[Any], pick: Callable[[list[Any]], Any]) -> Any:
    """The weighted sum of the elements at the corners around coordinates; `pick(corner)` is (..., channels)."""
    low = [meta.floor(a) for a in coordinates]
    total: Any = None
    for corner in product((0, 1), repeat=len(coordinates)):
        weight: Any = None
        for a, base, step in zip(coordinates, low, corner, strict=True):
            part = a - base if step else base + 1 - a
            weight = part if weight is None else weight * part
        value = pick([base + step for base, step in zip(low, corner, strict=True)])
        term = value * meta.expand_dims(weight, -1)
        total = term if total is None else total + term
    return total


def _bicubic(x: T, axes: list[Any], spatial: tuple[int, ...], padding_mode: str, align_corners: bool) -> T:
    """The weighted sum of 4 x 4 pixels; the padding mode brings each inside (R. Keys, 1981)."""
    if len(spatial) != 2:
        raise ArgumentError("grid_sample", f"bicubic with {len(spatial)} spatial axes", "two of them", 'use "bilinear"')
    coordinates = [_unscaled(a, size, align_corners) for a, size in zip(axes, spatial, strict=True)]
    low = [meta.floor(a) for a in coordinates]
    weights = [_cubic(a - base) for a, base in zip(coordinates, low, strict=True)]
    total: Any = None
    for row, column in product(range(4), repeat=2):
        places = [base + (step - 1) for base, step in zip(low, (row, column), strict=True)]
        inside = [_placed(p, size, padding_mode, align_corners) for p, size in zip(places, spatial, strict=True)]
        weight = meta.expand_dims(weights[0][row] * weights[1][column], -1)
        term = _pixels_at(x, inside, spatial, padding_mode) * weight
        total = term if total is None else total + term
    return total


def _cubic(part: T, a: float = -0.75) -> list[T]:
    """The weights of the four pixels around a place `part` behind the second."""

    def near(d: T) -> T:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: T) -> T:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _pixel(a: T, size: int, padding_mode: str, align_corners: bool) -> T:
    """A coordinate from -1 to 1 in pixels, inside unless outside is 0."""
    return _placed(_unscaled(a, size, align_corners), size, padding_mode, align_corners)


def _unscaled(a: T, size: int, align_corners: bool) -> T:
    return (a + 1) * ((size - 1) / 2) if align_corners else ((a + 1) * size - 1) / 2


def _placed(coordinate: T, size: int, padding_mode: str, align_corners: bool) -> T:
    """A coordinate in pixels brought inside, unless outside is 0."""
    if padding_mode == "reflection":
        coordinate = (
            _mirrored(coordinate, 0.0, size - 1.0) if align_corners else _mirrored(coordinate, -0.5, size - 0.5)
        )
    return coordinate if padding_mode == "zeros" else meta.clip(coordinate, 0, size - 1)


def _mirrored(coordinate: T, low: float, high: float) -> T:
    """A coordinate mirrored at both ends until it is between them."""
    span = high - low
    if span <= 0:
        return coordinate * 0
    away = meta.mod(meta.abs(coordinate - low), 2 * span)
    return meta.minimum(away, 2 * span - away) + low


def _pixels_at(x: T, coordinates: list[Any], spatial: tuple[int, ...], padding_mode: str) -> T:
    """The pixels (n, *places, c) of x (n, *spatial, c) at whole coordinates."""
    pixels = meta.gather_nd(x, meta.stack(nearest_inside(coordinates, spatial), 0), 1)
    if padding_mode != "zeros":
        return pixels
    inside: Any = None
    for a, size in zip(coordinates, spatial, strict=True):
        in_range = meta.logical_and(a >= 0, a <= size - 1)
        inside = in_range if inside is None else meta.logical_and(inside, in_range)
    return meta.where(meta.expand_dims(inside, -1), pixels, 0)


def nearest_inside(coordinates: list[Any], spatial: Sequence[Any]) -> list[Any]:
    """Whole coordinates as positions, those outside moved to the nearest inside."""
    return [meta.clip(meta.cast(a, "int64"), 0, d - 1) for a, d in zip(coordinates, spatial, strict=True)]


def roi_align(
    x: T, rois: T, size: tuple[int, int], spatial_scale: float = 1.0, sample_ratio: int = 2, mode: str = "avg"
) -> T:
    """The mean (or, with mode "max", the largest) of sample_ratio**2 interpolated elements in each of size[0] x size[1]
    bins of each region (K. He et al., "Mask R-CNN", 2017). x: (n, c, h, w); rois: (r, 5), the position in the batch and
    the corners x1, y1, x2, y2, in units of 1 / spatial_scale pixels; regions are at least a pixel wide and high. The
    result is (r, c, *size)."""
    if sample_ratio < 1 or mode not in ("avg", "max"):
        raise ArgumentError(
            "roi_align",
            f"sample_ratio {sample_ratio}, mode {mode!r}",
            'at least 1, and "avg" or "max"',
            "choose how many elements are sampled along each side of a bin",
        )
    batch, x1, y1, x2, y2 = (meta.squeeze(part, 1) for part in meta.split(rois, 5, 1))
    rows = _samples(y1 * spatial_scale, y2 * spatial_scale, size[0], sample_ratio)
    columns = _samples(x1 * spatial_scale, x2 * spatial_scale, size[1], sample_ratio)
    moved = meta.transpose(x, (0, 2, 3, 1))
    places = (rois.shape[0], size[0] * sample_ratio, size[1] * sample_ratio)
    example = meta.broadcast_to(meta.reshape(meta.cast(batch, "int64"), (-1, 1, 1)), places)
    coordinates = [
        meta.broadcast_to(meta.expand_dims(rows, 2), places),
        meta.broadcast_to(meta.expand_dims(columns, 1), places),
    ]
    inside = meta.logical_and(_near(coordinates[0], x.shape[2]), _near(coordinates[1], x.shape[3]))
    clamped = [meta.clip(a, 0, d - 1) for a, d in zip(coordinates, x.shape[2:], strict=True)]

    def pick(corner: list[Any]) -> Any:
        return meta.gather_nd(moved, meta.stack([example, *nearest_inside(corner, x.shape[2:])], 0))

    total = meta.where(meta.expand_dims(inside, -1), interpolated(clamped, pick), 0)
    bins = meta.reshape(total, (places[0], size[0], sample_ratio, size[1], sample_ratio, x.shape[1]))
    pooled = meta.mean(bins, (2, 4)) if mode == "avg" else meta.max(bins, (2, 4))
    return meta.transpose(pooled, (0, 3, 1, 2))


def _samples(first: T, last: T, bins: int, ratio: int) -> T:
    """Coordinates (r, bins * ratio) at the centres of equal parts of each region."""
    length = meta.maximum(last - first, 1.0)
    steps = meta.arange(0.5, bins * ratio, 1, first.dtype, first.device) / (bins * ratio)
    return meta.expand_dims(first, 1) + meta.expand_dims(length, 1) * steps


def _near(coordinate: T, size: int) -> T:
    """Whether a coordinate is not more than a pixel outside."""
    return meta.logical_and(coordinate >= -1, coordinate <= size)


def roi_pool(x: Tensor, rois: Tensor, size: Sequence[int], scale: float) -> Any:
    """The largest element in each bin of each region; bins without elements are 0 (R. Girshick, "Fast R-CNN", 2015).

    x: (n, c, h, w); rois: (r, 5), the image and the corners x1, y1, x2, y2, which times `scale` are rounded to elements
    of the region, halves away from 0; the result is (r, c, *size)."""
    corners = rois * scale
    corners = meta.trunc(corners + meta.sign(corners) * 0.5)
    out: Any = meta.take(x, meta.cast(meta.select(rois, 1, 0), "int64"), 0, "clip")
    for axis, low, bins in ((2, 2, size[0]), (3, 1, size[1])):
        out = _bin_maxima(out, axis, meta.select(corners, 1, low), meta.select(corners, 1, low + 2), bins)
    return out


def _bin_maxima(x: Tensor, axis: int, first: Tensor, last: Tensor, bins: int) -> Any:
    """x (r, ...) with the axis replaced by maxima of `bins` equal parts of [first, last]; empty parts are 0."""
    width = meta.expand_dims(meta.maximum(last - first + 1.0, 1.0) / float(bins), 1)
    steps = meta.arange(0, bins, 1, first.dtype, x.device)
    first = meta.expand_dims(first, 1)
    begin, end = first + meta.floor(width * steps), first + meta.ceil(width * (steps + 1.0))
    places = meta.arange(0, x.shape[axis], 1, steps.dtype, x.device)
    inside = meta.logical_and(meta.expand_dims(begin, 2) <= places, places < meta.expand_dims(end, 2))
    moved = meta.expand_dims(meta.moveaxis(x, axis, -1), -2)  # (r, ..., 1, elements)
    mask = meta.reshape(inside, (inside.shape[0], *(1,) * (x.ndim - 2), bins, x.shape[axis]))
    best = meta.max(meta.where(mask, moved, -math.inf), -1)
    return meta.moveaxis(meta.where(meta.any(mask, -1), best, 0), -1, axis)
