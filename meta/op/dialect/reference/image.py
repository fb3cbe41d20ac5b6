"""Operators on images in NumPy: resizing is a matrix product along each spatial axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference import DIALECT
from meta.op.dialect.reference._precision import widen

_ROUNDING = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


def _positions(size: int, count: int, coordinates: str) -> Any:
    i = np.arange(count)
    if coordinates == "align_corners":
        return i * (size - 1) / max(count - 1, 1)
    if coordinates == "asymmetric":
        return i * size / count
    if coordinates == "tf_half_pixel_for_nn":
        return (2 * i + 1) * size / (2 * count)
    if coordinates == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    return ((2 * i + 1) * size - count) / (2 * count)


def _weight(distance: Any, method: str, alpha: float) -> Any:
    """Of an element at a distance: a triangle, or Keys' cubic."""
    d = np.abs(distance)
    if method == "linear":
        return np.maximum(1 - d, 0)
    inner = (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1
    outer = alpha * (d**3 - 5 * d**2 + 8 * d - 4)
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def _matrix(size: int, count: int, method: str, coordinates: str, rounding: str, alpha: float) -> Any:
    """The weight (count, size) of every element of the input in every element of the result."""
    at = _positions(size, count, coordinates)
    if method == "nearest":
        picked = np.clip(_ROUNDING[rounding](at), 0, size - 1).astype(np.int64)
        return np.eye(size)[picked]
    out = np.zeros((count, size))
    base = np.floor(at).astype(np.int64)
    for tap in range(-1, 3):
        weight = _weight(at - (base + tap), method, alpha)
        np.add.at(out, (np.arange(count), np.clip(base + tap, 0, size - 1)), weight)
    return out


def resize(x: Any, size: Any, *how: Any) -> Any:
    sizes = size * (x.ndim - 2) if len(size) == 1 else size
    out = widen(x)
    for axis, count in enumerate(sizes, 2):
        matrix = _matrix(x.shape[axis], count, *how).astype(out.dtype)
        out = np.moveaxis(np.tensordot(matrix, out, (1, axis)), 0, axis)
    return out


def resize_dx(dy: Any, shape: Any, *how: Any) -> Any:
    out = widen(dy)
    for axis, size in enumerate(shape[2:], 2):
        matrix = _matrix(size, dy.shape[axis], *how).astype(out.dtype)
        out = np.moveaxis(np.tensordot(matrix, out, (0, axis)), 0, axis)
    return out


for _rank in (1, 2, 3):
    DIALECT.implement(f"resize{_rank}d", resize)
    DIALECT.implement(f"resize{_rank}d_dx", resize_dx)
