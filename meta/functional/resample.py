"""Images at other sizes, by torch's modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import meta
from meta._generated.methods import T, Tensor
from meta.dtype import accumulation_dtype, is_float
from meta.errors import ArgumentError
from meta.functional._resize_filters import antialiasing_matrix, cubic, resized_bytes

__all__ = ["interpolate"]

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""The number of spatial axes that a mode is for."""
_NEAREST = {"nearest": "asymmetric", "nearest-exact": "tf_half_pixel_for_nn"}
"""Coordinates of the operator `resize` for a mode."""


def interpolate(
    x: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest", align_corners: bool = False, recompute_scale_factor: bool = False, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """The image (n, c, *spatial) at another size.

    size: the spatial sizes, or one for all axes.  scale_factor: instead, multiplies the sizes, one factor or one an
        axis; results are rounded down. Elements are 1 / scale_factor apart then, or with `recompute_scale_factor` the
        ratio of the sizes.
    mode: "nearest"; "nearest-exact", which rounds the centres of elements; "linear" (one spatial axis), "bilinear"
        (two), "trilinear" (three) or "bicubic" (two; R. Keys, 1981, with a = -0.75); "area", the mean of the elements
        that an element covers.
    align_corners: whether the centres of the outermost elements stay at their places; for the linear and cubic modes.
    antialias: widen the filters of "bilinear" and "bicubic" (a = -0.5) when an image shrinks, as Pillow does. They are
        products with matrices, which make NaN of all rows and columns of an infinity or NaN; torch's reach the
        elements within the filter.
    Integers take the modes "nearest", "nearest-exact" and "area". Images of uint8 also take "bilinear" and "bicubic",
    with weights in 16 bits, rounded after each axis, as in Pillow and torch.
    Raises ArgumentError unless there is one of size and scale_factor, and for modes and options that do not fit x."""
    sizes, factors = _sizes(x, size, scale_factor)
    _check(x, sizes, mode, align_corners, antialias)
    if recompute_scale_factor:
        factors = None
    if mode == "area":
        return getattr(meta, f"adaptive_avg_pool{len(sizes)}d")(x, sizes)
    if x.dtype == "uint8" and mode in _RANKS:
        return resized_bytes(x, sizes, factors, mode, align_corners, antialias)
    if antialias:
        return _antialiased(x, sizes, factors, mode, align_corners)
    if factors is None or align_corners or _whole(x, sizes, factors):
        return _resized(x, sizes, mode, align_corners)
    wide = x if mode in _NEAREST else meta.cast(x, accumulation_dtype(x.dtype))
    for axis, (count, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        wide = _resampled(wide, axis, count, factor, mode)
    return meta.cast(wide, x.dtype)


def _sizes(x: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The spatial sizes of the result, and the factors if they were given."""
    spatial = tuple(x.shape[2:])
    if (size is None) == (scale_factor is None):
        problem = f"size is {size}, scale_factor is {scale_factor}"
        raise ArgumentError("interpolate", problem, "one of the two")
    size_or_factor = size if scale_factor is None else scale_factor
    values: tuple[Any, ...] = (
        (size_or_factor,) * len(spatial) if isinstance(size_or_factor, (int, float)) else tuple(size_or_factor)
    )
    if len(values) != len(spatial):
        problem = (
            f"{'size' if scale_factor is None else 'scale_factor'} is {size_or_factor}, 'x' has shape {tuple(x.shape)}"
        )
        raise ArgumentError("interpolate", problem, f"one number, or {len(spatial)}, one for each spatial axis")
    if scale_factor is None:
        return values, None
    return tuple(math.floor(n * f) for n, f in zip(spatial, values, strict=True)), tuple(map(float, values))


def _check(x: Tensor, sizes: tuple[int, ...], mode: str, align_corners: bool, antialias: bool) -> None:
    if mode not in _NEAREST and mode not in _RANKS and mode != "area":
        raise ArgumentError("interpolate", f"mode is {mode!r}", ", ".join(map(repr, (*_NEAREST, *_RANKS, "area"))))
    rank = len(sizes)
    if rank not in (1, 2, 3) or _RANKS.get(mode, rank) != rank:
        spatial = f"{_RANKS[mode]} spatial axes" if mode in _RANKS else "1 to 3 spatial axes"
        raise ArgumentError(
            "interpolate", f"mode is {mode!r}, 'x' has shape {tuple(x.shape)}", f"(n, c, ...), {spatial}"
        )
    if min(sizes) < 1:
        raise ArgumentError("interpolate", f"the result would have sizes {sizes}", "at least one element an axis")
    if align_corners and mode not in _RANKS:
        raise ArgumentError("interpolate", f"align_corners with mode {mode!r}", f"a mode of {', '.join(_RANKS)}")
    if mode in _RANKS and not is_float(x.dtype) and (x.dtype != "uint8" or rank != 2):
        problem = f"mode is {mode!r}, x is {x.dtype} with {rank} spatial axes"
        expected = "a floating dtype, or uint8 with two spatial axes"
        raise ArgumentError("interpolate", problem, expected, 'cast it: x.cast("float32")')
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError("interpolate", f"antialias with mode {mode!r}", '"bilinear" or "bicubic"')


def _whole(x: Tensor, sizes: tuple[int, ...], factors: tuple[float, ...]) -> bool:
    """Whether the factors are the ratios of the sizes."""
    return all(n * f == size for n, f, size in zip(x.shape[2:], factors, sizes, strict=True))


def _resized(x: T, sizes: tuple[int, ...], mode: str, align_corners: bool) -> T:
    resize: Callable[..., Any] = getattr(meta, f"resize{len(sizes)}d")
    if mode in _NEAREST:
        return resize(x, sizes, "nearest", _NEAREST[mode])
    method = "cubic" if mode == "bicubic" else "linear"
    return resize(x, sizes, method, "align_corners" if align_corners else "half_pixel")


def _resampled(x: T, axis: int, count: int, factor: float, mode: str) -> T:
    """x interpolated along an axis at `count` places that are 1 / factor apart."""
    size = x.shape[axis]
    number: Any = np.float64 if x.dtype == "float64" else np.float32
    step, i = number(1 / factor), _numbers(count, number)

    def sampled(position: Any) -> Any:
        indices = np.minimum(np.maximum(position, 0), size - 1).astype(np.int64)
        return meta.take(x, meta.array(indices, device=x.device), axis)

    if mode in _NEAREST:
        return sampled(np.floor(i * step if mode == "nearest" else (i + number(0.5)) * step))
    place: Any = step * (i + number(0.5)) - number(0.5)
    place = place if mode == "bicubic" else np.maximum(place, 0)
    first = np.floor(place)
    part = place - first
    weights: tuple[Any, ...] = _cubic_weights(part) if mode == "bicubic" else (1 - part, part)
    offset = 1 if mode == "bicubic" else 0
    shape = [1] * x.ndim
    shape[axis] = count
    total: Any = None
    for n, weight in enumerate(weights):
        factors = meta.array(weight.astype(number).reshape(shape), device=x.device)
        term = sampled(first + (n - offset)) * factors
        total = term if total is None else total + term
    return total


def _numbers(count: int, dtype: Any) -> Any:
    return np.arange(count).astype(dtype)


def _cubic_weights(part: Any) -> tuple[Any, ...]:
    """The weights of the four elements around a place `part` behind the second."""
    return tuple(cubic(np.abs(part - n), -0.75) for n in (-1, 0, 1, 2))


def _antialiased(
    x: Tensor, sizes: tuple[int, ...], factors: tuple[float, ...] | None, mode: str, align_corners: bool
) -> Tensor:
    """The image as a product with a matrix along each axis."""
    wide = meta.cast(x, accumulation_dtype(x.dtype))
    for axis, count in enumerate(sizes, 2):
        n = x.shape[axis]
        step = 1 / factors[axis - 2] if factors is not None else n / count
        if align_corners:
            step = (n - 1) / (count - 1) if count > 1 else 0.0
        matrix = meta.array(antialiasing_matrix(n, count, step, mode).astype(wide.dtype), device=x.device)
        moved = meta.matmul(meta.moveaxis(wide, axis, -1), matrix, transpose_b=True)
        wide = meta.moveaxis(moved, -1, axis)
    return meta.cast(wide, x.dtype)
