"""Resizing and patches of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError, NotSupportedError
from meta.frontend.torch.aten._row import direct, row, rows

rows(
    {
        "channel_shuffle": "channel_shuffle",
        "native_channel_shuffle": "channel_shuffle",
        "pixel_shuffle": direct("pixel_shuffle", upscale_factor="factor"),
        "pixel_unshuffle": direct("pixel_unshuffle", downscale_factor="factor"),
        "im2col": "im2col",
        "col2im": "col2im",
    }
)


def _upsample(mode: Any, aligns: bool = False, antialias: bool = False) -> Callable[..., Any]:
    """The row of a mode: with `align_corners` after the sizes if it `aligns`, and then scales for all axes."""

    def run(x: Tensor, output_size: Any, align_corners: bool, scales: Sequence[float | None]) -> Any:
        spatial = x.shape[2:]
        has_scales = len(scales) == len(spatial) and all(s is not None for s in scales)
        factors: Any = tuple(scales)
        if has_scales and (output_size is None or _sizes(spatial, factors) == tuple(output_size)):
            return meta.interpolate(x, None, factors, mode, align_corners, antialias=antialias)
        if has_scales and not align_corners and all(isinstance(n, int) for n in (*spatial, *output_size)):
            return _cropped(x, tuple(output_size), factors, mode, antialias)
        return meta.interpolate(x, tuple(output_size), None, mode, align_corners, antialias=antialias)

    if aligns:
        return lambda self, output_size, align_corners, *scales, **named: run(
            self, output_size, align_corners, _scales(scales, named)
        )
    return lambda self, output_size, *scales, **named: run(self, output_size, False, _scales(scales, named))


def _cropped(x: Tensor, size: tuple[int, ...], factors: tuple[float, ...], mode: Any, antialias: bool) -> Any:
    """The first elements of a resized image: the factors alone decide where an element is read."""
    if any(n > whole for n, whole in zip(size, _sizes(x.shape[2:], factors), strict=True)):
        problem = f"the size is {size}, with scales {factors} of an operand of shape {x.shape}"
        raise NotSupportedError("upsample", problem, "at most the product of scales and sizes of the operand")
    whole = meta.interpolate(x, None, factors, mode, False, antialias=antialias)
    return whole[(slice(None), slice(None), *(slice(n) for n in size))]


def _sizes(spatial: Sequence[int], factors: Sequence[float]) -> tuple[int, ...]:
    return tuple(math.floor(n * f) for n, f in zip(spatial, factors, strict=True))


def _scales(scales: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
    """The factor of each axis: one list, or one argument an axis."""
    values = [*scales, *keywords.values()]
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = list(values[0])
    return tuple(value for value in values if value is not None)


for _rank, _linear in enumerate(("linear", "bilinear", "trilinear"), 1):
    row(f"upsample_nearest{_rank}d")(_upsample("nearest"))
    row(f"_upsample_nearest_exact{_rank}d")(_upsample("nearest-exact"))
    row(f"upsample_{_linear}{_rank}d")(_upsample(_linear, aligns=True))
row("upsample_bicubic2d")(_upsample("bicubic", aligns=True))
row("_upsample_bilinear2d_aa")(_upsample("bilinear", aligns=True, antialias=True))
row("_upsample_bicubic2d_aa")(_upsample("bicubic", aligns=True, antialias=True))


_INTERPOLATION = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


@row("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """The grid's coordinates are its last axis, unlike in `meta.grid_sample`."""
    if interpolation_mode not in range(3) or padding_mode not in range(3):
        problem = f"the modes are {interpolation_mode} and {padding_mode}"
        raise ArgumentError("grid_sampler", problem, f"0 to 2, for {_INTERPOLATION} and {_PADDING}")
    method, padding = _INTERPOLATION[interpolation_mode], _PADDING[padding_mode]
    return meta.grid_sample(input, meta.moveaxis(grid, -1, 1), method, padding, align_corners)


@row()
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Any:
    """The places (n, *spatial, axes) that maps (n, axes, axes + 1) take a grid to, with coordinates from -1 to 1 at the
    centres of the outermost elements, or at their edges without `align_corners`; the last axis of the grid first."""
    spatial = tuple(size[2:])
    rank = len(spatial)
    if rank not in (2, 3) or tuple(theta.shape) != (size[0], rank, rank + 1):
        shapes = f"theta has shape {tuple(theta.shape)}, the size is {tuple(size)}"
        raise ArgumentError("affine_grid_generator", shapes, "(n, d, d + 1) and n, c and d sizes, with d 2 or 3")
    return meta.moveaxis(meta.affine_grid(theta, spatial, align_corners), 1, -1)
