"""Operators on images in NumPy. Resizing takes weighted sums along one spatial axis after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import DIALECT
from meta.op.dialect.reference.sort import argsort

_ROUNDING = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda position: np.ceil(position - 0.5),
    "round_prefer_ceil": lambda position: np.floor(position + 0.5),
}


def _source_positions(size: int, count: int, coordinates: str) -> Any:
    """For each of `count` result elements, its fractional position among `size` input elements."""
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
    """The weight of an element at a distance: a triangle (linear) or Keys' kernel (cubic)."""
    d = np.abs(distance)
    if method == "linear":
        return np.maximum(1 - d, 0)
    inner = (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1
    outer = alpha * (d**3 - 5 * d**2 + 8 * d - 4)
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def _taps(size: int, count: int, method: str, coordinates: str, rounding: str, alpha: float) -> list[tuple[Any, Any]]:
    """The input positions and weights, each an array of `count` elements, whose weighted sum a result element is. A
    weight of 0 counts: times NaN or infinity it is NaN, as in torch."""
    position = _source_positions(size, count, coordinates)
    if method == "nearest":
        return [(np.clip(_ROUNDING[rounding](position), 0, size - 1).astype(np.int64), None)]
    if method == "linear":
        position = np.maximum(position, 0)
    base = np.floor(position).astype(np.int64)
    return [
        (np.clip(base + tap, 0, size - 1), _weight(position - (base + tap), method, alpha))
        for tap in ((0, 1) if method == "linear" else (-1, 0, 1, 2))
    ]


def _weighted(part: Any, weight: Any) -> Any:
    """An array times the weights of its last axis."""
    return part if weight is None else part * weight.astype(part.dtype)


def resize(x: Any, size: Any, *how: Any) -> Any:
    sizes = size * (x.ndim - 2) if len(size) == 1 else size
    out = widen(x)
    for axis, count in enumerate(sizes, 2):
        rows = np.moveaxis(out, axis, -1)
        parts = [_weighted(rows[..., place], weight) for place, weight in _taps(x.shape[axis], count, *how)]
        out = np.moveaxis(np.sum(parts, axis=0), -1, axis) if len(parts) > 1 else np.moveaxis(parts[0], -1, axis)
    return out


def resize_dx(dy: Any, shape: Any, *how: Any) -> Any:
    out = widen(dy)
    for axis, size in enumerate(shape[2:], 2):
        rows = np.moveaxis(out, axis, -1)
        total = np.zeros((*rows.shape[:-1], size), rows.dtype)
        for place, weight in _taps(size, dy.shape[axis], *how):
            index: Any = (..., place)
            np.add.at(total, index, _weighted(rows, weight))
        out = np.moveaxis(total, -1, axis)
    return out


def non_max_suppression(
    boxes: Any, scores: Any, iou_threshold: float, score_threshold: float | None, max_size: int | None
) -> Any:
    indices = np.full(scores.shape, -1, np.int64)
    count = np.zeros(scores.shape[:1], np.int64)
    for n, (corners, score) in enumerate(zip(widen(boxes), widen(scores), strict=True)):
        selected: list[int] = []
        for box in argsort(score, 0, True):
            has_room = max_size is None or len(selected) < max_size
            if (
                has_room
                and (score_threshold is None or score[box] > score_threshold)
                and not any(_overlap_ratio(corners[box], corners[k]) > iou_threshold for k in selected)
            ):
                selected.append(int(box))
        indices[n, : len(selected)] = selected
        count[n] = len(selected)
    return indices, count


def _overlap_ratio(a: Any, b: Any) -> Any:
    """Intersection over union of two boxes; 0 where the union is empty."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - np.prod(sides)
    return np.prod(sides) / union if union > 0 else 0


DIALECT.implement("non_max_suppression", non_max_suppression)
for _rank in (1, 2, 3):
    DIALECT.implement(f"resize{_rank}d", resize)
    DIALECT.implement(f"resize{_rank}d_dx", resize_dx)
