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


def non_max_suppression(
    boxes: Any, scores: Any, iou_threshold: float, score_threshold: float | None, max_size: int | None
) -> Any:
    indices = np.full(scores.shape, -1, np.int64)
    count = np.zeros(scores.shape[:1], np.int64)
    for n, (corners, score) in enumerate(zip(widen(boxes), widen(scores), strict=True)):
        kept: list[int] = []
        for at in np.argsort(-score, kind="stable"):
            room = max_size is None or len(kept) < max_size
            if (
                room
                and (score_threshold is None or score[at] > score_threshold)
                and not any(_iou(corners[at], corners[k]) > iou_threshold for k in kept)
            ):
                kept.append(int(at))
        indices[n, : len(kept)] = kept
        count[n] = len(kept)
    return indices, count


def _iou(a: Any, b: Any) -> Any:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - np.prod(sides)
    return np.prod(sides) / union if union > 0 else 0


DIALECT.implement("non_max_suppression", non_max_suppression)
for _rank in (1, 2, 3):
    DIALECT.implement(f"resize{_rank}d", resize)
    DIALECT.implement(f"resize{_rank}d_dx", resize_dx)
