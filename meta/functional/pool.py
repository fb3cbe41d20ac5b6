"""Pooling with other windows, and its inverse."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import product
from meta.dtype import is_int
from meta.errors import ArgumentError, MetaError
from meta.op import windows

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "sum_pool1d",
    "sum_pool2d",
    "sum_pool3d",
]

_Size = int | Sequence[int]


def max_unpool1d(
    x: Tensor, indices: Tensor, kernel: _Size, stride: _Size | None = None, padding: _Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements of x at the positions from which max_pool1d_with_indices took them.

    x, indices: (n, c, l) or (c, l). kernel, stride, padding: as in the pooling; they give the size of the result unless
    `output_size`, the size of the pooled axes or the whole shape, does: it may differ by less than the stride. Of
    elements with one position, one is kept. Raises ArgumentError for shapes that do not fit."""
    return _max_unpool(1, x, indices, kernel, stride, padding, output_size)


def max_unpool2d(
    x: Tensor, indices: Tensor, kernel: _Size, stride: _Size | None = None, padding: _Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of max_pool2d_with_indices, of (n, c, h, w) or (c, h, w); see max_unpool1d."""
    return _max_unpool(2, x, indices, kernel, stride, padding, output_size)


def max_unpool3d(
    x: Tensor, indices: Tensor, kernel: _Size, stride: _Size | None = None, padding: _Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of max_pool3d_with_indices, of (n, c, d, h, w) or (c, d, h, w); see max_unpool1d."""
    return _max_unpool(3, x, indices, kernel, stride, padding, output_size)


def _max_unpool(
    rank: int, x: Tensor, indices: Tensor, kernel: _Size, stride: _Size | None, padding: _Size,
    output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    name = f"max_unpool{rank}d"
    if x.ndim not in (rank + 1, rank + 2) or tuple(x.shape) != tuple(indices.shape):
        problem = f"'x' has shape {tuple(x.shape)}, 'indices' {tuple(indices.shape)}"
        raise ArgumentError(name, problem, f"equal shapes of rank {rank + 2}, or {rank + 1} without a batch")
    kernels = _sizes(name, "kernel", kernel, rank)
    strides = kernels if stride is None else _sizes(name, "stride", stride, rank)
    pads = _sizes(name, "padding", padding, rank, least=0)
    lead, pooled = tuple(x.shape[:-rank]), x.shape[-rank:]
    size = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(pooled, strides, pads, kernels, strict=True))
    if output_size is not None:
        size = _allowed(name, tuple(output_size), lead, size, strides)
    rows = product(lead)
    base = meta.zeros((rows, product(size)), x.dtype, x.device)
    flat = (rows, product(pooled))
    placed = meta.scatter_elements(base, 1, meta.reshape(indices, flat), meta.reshape(x, flat))
    return meta.reshape(placed, (*lead, *size))


def _allowed(
    name: str, output_size: tuple[int, ...], lead: tuple[Any, ...], size: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """The sizes of the pooled axes that `output_size` asks for."""
    spatial = output_size[len(lead) :] if len(output_size) == len(lead) + len(size) else output_size
    near = len(spatial) == len(size) and all(
        abs(a - b) < step or a == b for a, b, step in zip(spatial, size, strides, strict=True)
    )
    if not near:
        raise ArgumentError(
            name, f"output_size is {output_size}", f"{size}, or sizes that differ by less than the stride"
        )
    return spatial


def _sizes(name: str, what: str, value: _Size, rank: int, least: int = 1) -> tuple[int, ...]:
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    if len(sizes) != rank or any(n < least for n in sizes):
        raise ArgumentError(name, f"{what} is {value}", f"one int or {rank}, each at least {least}")
    return sizes


def fractional_max_pool2d(x: Tensor, samples: Tensor, kernel: _Size, size: _Size) -> tuple[Tensor, Tensor]:
    """Maxima over windows that start at pseudo-random places, and their positions (int64) among the elements of a
    channel (B. Graham, "Fractional Max-Pooling", 2014). x: (n, c, h, w) or (c, h, w).

    samples: random numbers from 0 to 1, (n, c, 2), for the width and the height of each channel, from which the places
    follow: for example `meta.random.uniform((n, c, 2))`. size: the spatial shape of the result. Window i of an axis of
    n elements starts at floor((i + u) * a) - floor(u * a), with u the sample and a = (n - kernel) / (size - 1); the
    last ends with the axis. Raises ArgumentError for shapes that do not fit."""
    return _fractional_max_pool(2, x, samples, kernel, size)


def fractional_max_pool3d(x: Tensor, samples: Tensor, kernel: _Size, size: _Size) -> tuple[Tensor, Tensor]:
    """Fractional max pooling of (n, c, d, h, w) or (c, d, h, w), with samples (n, c, 3) for depth, height
    and width; see fractional_max_pool2d."""
    return _fractional_max_pool(3, x, samples, kernel, size)


def _fractional_max_pool(rank: int, x: Tensor, samples: Tensor, kernel: _Size, size: _Size) -> tuple[Any, Any]:
    name = f"fractional_max_pool{rank}d"
    if x.ndim == rank + 1:
        y, indices = _fractional_max_pool(rank, meta.expand_dims(x, 0), samples, kernel, size)
        return meta.squeeze(y, 0), meta.squeeze(indices, 0)
    if x.ndim != rank + 2 or tuple(samples.shape) != (*x.shape[:2], rank):
        problem = f"'x' has shape {tuple(x.shape)}, 'samples' {tuple(samples.shape)}"
        raise ArgumentError(name, problem, f"x of rank {rank + 2} and samples (n, c, {rank})")
    kernels, counts = _sizes(name, "kernel", kernel, rank), _sizes(name, "size", size, rank)
    spatial = x.shape[2:]
    if any(k + c - 1 > n for k, c, n in zip(kernels, counts, spatial, strict=True)):
        problem = f"kernel {kernels} and size {counts} of an image {tuple(spatial)}"
        raise ArgumentError(name, problem, "windows that fit: at most kernel + size - 1 elements an axis")
    flat: Any = 0
    for axis in range(rank):
        sample = 1 - axis if rank == 2 else axis  # as in torch: the width's comes first in two dimensions
        u = meta.squeeze(meta.strided_slice(samples, (0, 0, sample), (*x.shape[:2], sample + 1)), 2)
        start = _window_starts(u, spatial[axis], kernels[axis], counts[axis])
        element = meta.expand_dims(start, 3) + meta.arange(0, kernels[axis], 1, "int64", x.device)
        shape = [*x.shape[:2], *(1,) * (2 * rank)]
        shape[2 + axis], shape[2 + rank + axis] = counts[axis], kernels[axis]
        flat = flat * spatial[axis] + meta.reshape(element, tuple(shape))
    places = meta.reshape(flat, (*x.shape[:2], product(counts) * product(kernels)))
    values = meta.gather(meta.reshape(x, (*x.shape[:2], product(spatial))), 2, places)
    window = (*x.shape[:2], product(counts), product(kernels))
    values, places = meta.reshape(values, window), meta.reshape(places, window)
    best = meta.argmax(values, 3, True)
    shape = (*x.shape[:2], *counts)
    return meta.reshape(meta.gather(values, 3, best), shape), meta.reshape(meta.gather(places, 3, best), shape)


def _window_starts(u: T, size: int, kernel: int, count: int) -> T:
    """Where the windows along an axis start, int64, (n, c, count)."""
    last = size - kernel
    i = meta.arange(0, count, 1, "int64", u.device)
    if count == 1:
        return meta.cast(meta.expand_dims(meta.zeros_like(u), 2), "int64") + last
    step = last / (count - 1)
    u = meta.expand_dims(u, 2)
    places = meta.cast(meta.floor((u + meta.cast(i, u.dtype)) * step), "int64")
    return meta.where(meta.equal(i, count - 1), last, places - meta.cast(meta.floor(u * step), "int64"))


def sum_pool1d(x: T, kernel: _Size, stride: _Size | None = None, padding: _Size = 0, ceil_mode: bool = False) -> T:
    """The sum of each window of (n, c, l); stride defaults to the kernel. padding: zeros at both ends. ceil_mode: keep
    a last window that is partly outside if it starts inside. Divided by a number it is avg_pool1d with another
    divisor. Sums of integers are int64. Raises TypeInferenceError and ArgumentError for shapes and sizes that do not
    fit."""
    return _sum_pool(1, x, kernel, stride, padding, ceil_mode)


def sum_pool2d(x: T, kernel: _Size, stride: _Size | None = None, padding: _Size = 0, ceil_mode: bool = False) -> T:
    """The sum of each window of (n, c, h, w); see sum_pool1d."""
    return _sum_pool(2, x, kernel, stride, padding, ceil_mode)


def sum_pool3d(x: T, kernel: _Size, stride: _Size | None = None, padding: _Size = 0, ceil_mode: bool = False) -> T:
    """The sum of each window of (n, c, d, h, w); see sum_pool1d."""
    return _sum_pool(3, x, kernel, stride, padding, ceil_mode)


def _sum_pool(rank: int, x: T, kernel: _Size, stride: _Size | None, padding: _Size, ceil_mode: bool) -> T:
    name = f"sum_pool{rank}d"
    if x.ndim != rank + 2:
        raise ArgumentError(name, f"'x' has shape {tuple(x.shape)}", f"rank {rank + 2}: (batch, channels, *spatial)")
    kernels = _sizes(name, "kernel", kernel, rank)
    strides = kernels if stride is None else _sizes(name, "stride", stride, rank)
    pads = _sizes(name, "padding", padding, rank, least=0)
    widths: list[tuple[int, int]] = [(0, 0), (0, 0)]
    counts: list[int] = []
    for n, k, s, p in zip(x.shape[2:], kernels, strides, pads, strict=True):
        counts.append(_window_count(name, n, k, s, p, ceil_mode))
        widths.append((p, (counts[-1] - 1) * s + k - n - p))
    if any(before or after for before, after in widths):
        x = meta.pad(x, widths)
    if is_int(x.dtype):  # means of integers are rounded
        x = meta.cast(x, "int64")
        terms = (_strided(x, first, counts, strides) for first in itertools.product(*map(range, kernels)))
        return functools.reduce(meta.add, terms)
    pool: Callable[..., Any] = getattr(meta, f"avg_pool{rank}d")
    return pool(x, kernels, strides) * product(kernels)


def _strided(x: T, first: Sequence[int], counts: Sequence[int], strides: Sequence[int]) -> T:
    """The elements at a position of each window."""
    ranges = [slice(i, i + (n - 1) * s + 1, s) for i, n, s in zip(first, counts, strides, strict=True)]
    return x[(slice(None), slice(None), *ranges)]


def _window_count(name: str, size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    try:
        return int(windows.window_count(size, kernel, stride, (padding, padding), 1, ceil_mode))
    except MetaError as error:
        error.attribute(name)
        raise
