"""Weights that resize an axis: of each old element in each new one. Also images of bytes resized by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor


def cubic(distance: Any, a: float) -> Any:
    """Keys' kernel at a distance of up to 2."""
    d = distance
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, inner, np.where(d < 2, (((d - 5) * d + 8) * d - 4) * a, 0))


def antialiasing_matrix(n: int, count: int, step: float, mode: str) -> Any:
    """The weights (count, n) of the elements within the support of a filter around each place; rows sum to 1."""
    widened = max(step, 1.0)
    support = (2.0 if mode == "bicubic" else 1.0) * widened
    centre = step * (np.arange(count) + 0.5)
    low = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    high = np.minimum((centre + support + 0.5).astype(np.int64), n)
    position = np.arange(n)
    distance = np.abs(position + 0.5 - centre[:, None]) / widened
    weights = cubic(distance, -0.5) if mode == "bicubic" else np.maximum(1 - distance, 0)
    weights = np.where((position >= low[:, None]) & (position < high[:, None]), weights, 0)
    return weights / weights.sum(1, keepdims=True)


def matrix_at(
    n: int, positions: Any, is_cubic: bool, a: float = -0.75, shrink: float = 1.0, exclude_outside: bool = False,
    normalize: bool = False,
) -> Any:  # fmt: skip
    """The weights (positions, n) of the elements around each position; those outside go to the outermost, unless they
    are excluded.

    shrink: below 1, the filter reaches as much further.  normalize: let rows sum to 1."""
    reach = math.ceil((2 if is_cubic else 1) / shrink) + 1
    places = np.floor(positions)[:, None] + np.arange(-reach, reach + 1)
    distance = np.abs(places - positions[:, None]) * shrink
    weights = cubic(distance, a) if is_cubic else np.maximum(1 - distance, 0)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= n), 0.0, weights)
    if exclude_outside or normalize:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    matrix = np.zeros((len(positions), n))
    rows = np.broadcast_to(np.arange(len(positions))[:, None], places.shape)
    np.add.at(matrix, (rows, np.minimum(np.maximum(places, 0), n - 1).astype(np.int64)), weights)
    return matrix


def _plain_matrix(n: int, count: int, step: float, mode: str, align_corners: bool) -> Any:
    """The weights (count, n) of the two or four elements around each place."""
    shift = 0.5 if align_corners else 0.0
    return matrix_at(n, step * (np.arange(count) + 0.5 - shift) + shift - 0.5, mode == "bicubic")


_BITS = 15
"""Width of the weights of bytes, without their sign."""


def _whole_weights(matrix: Any) -> tuple[Any, int]:
    """Weights as integers of 16 bits, and the power of two that they are multiples of."""
    shift = 0
    while shift < 22 and int(0.5 + matrix.max() * 2 ** (shift + 1)) < 2**_BITS:
        shift += 1
    return np.trunc(matrix * 2**shift + np.copysign(0.5, matrix)).astype(np.int32), shift


def resized_bytes(
    x: Tensor,
    sizes: tuple[int, ...],
    factors: tuple[float, ...] | None,
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Any:
    """An image of uint8 at another size, the last axis first, each axis rounded to bytes."""
    wide = meta.cast(x, "int32")
    for axis, count in reversed(list(enumerate(sizes, 2))):
        n = x.shape[axis]
        step = 1 / factors[axis - 2] if factors is not None else n / count
        if align_corners:
            step = (n - 1) / (count - 1) if count > 1 else 0.0
        matrix = (antialiasing_matrix(n, count, step, mode) if antialias
                  else _plain_matrix(n, count, step, mode, align_corners))  # fmt: skip
        weights, shift = _whole_weights(matrix)
        products = meta.matmul(meta.moveaxis(wide, axis, -1), meta.array(weights, device=x.device), transpose_b=True)
        rounded = meta.right_shift(products + 2 ** (shift - 1), shift)
        wide = meta.moveaxis(meta.clip(rounded, 0, 255), -1, axis)
    return meta.cast(wide, "uint8")
