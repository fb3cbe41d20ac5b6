"""Samples of operators on images."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

_MODES = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}


def _resize(x: Any, size: Any, method: str = "linear", coordinates: str = "half_pixel", *_: Any) -> Any:
    """By torch, which has the default rounding, and for "nearest" one kind of coordinates for each mode."""
    if method == "nearest":
        mode = {"asymmetric": "nearest", "tf_half_pixel_for_nn": "nearest-exact"}[coordinates]
        return torch.nn.functional.interpolate(x, size, mode=mode)
    mode = _MODES[method, x.ndim - 2]
    return torch.nn.functional.interpolate(x, size, mode=mode, align_corners=coordinates == "align_corners")


def _resize_dx(dy: Any, shape: Any, *how: Any) -> Any:
    with torch.enable_grad():
        x = torch.zeros(shape, dtype=dy.dtype, requires_grad=True)
        return torch.autograd.grad(_resize(x, tuple(dy.shape[2:]), *how), x, dy, create_graph=True)[0]


def _picked(*picked: int) -> Any:
    """The reference that picks these elements along the last axis."""
    return lambda x, *_: x[..., list(picked)]


def _suppressed(boxes: Any, scores: Any, iou: float = 0.5, least: float | None = None, most: int | None = None) -> Any:
    """The indices and counts of the boxes that remain: each head of the list removes all that overlap it."""
    indices, counts = torch.full(scores.shape, -1), []
    for n in range(len(scores)):
        candidates = [
            i for i in scores[n].argsort(descending=True, stable=True).tolist() if least is None or scores[n, i] > least
        ]
        selected: list[int] = []
        while candidates:
            head, *candidates = candidates
            selected.append(head)
            candidates = [i for i in candidates if _overlap(boxes[n, head], boxes[n, i]) <= iou]
        selected = selected[:most]
        indices[n, : len(selected)] = torch.tensor(selected, dtype=torch.int64)
        counts.append(len(selected))
    return indices, torch.tensor(counts, dtype=torch.int64)


def _overlap(a: Any, b: Any) -> float:
    w = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    h = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return float(w * h / union) if union > 0 else 0.0


SAMPLES = [
    Sample("non_max_suppression", T(2, 12, 4), T(2, 12, distinct=True), 0.1, ref=_suppressed),
    Sample("non_max_suppression", T(1, 40, 4), T(1, 40, distinct=True), 0.2, -0.5, 6, ref=_suppressed),
    Sample("resize1d", T(2, 3, 5), 8, ref=_resize),
    Sample("resize1d", T(1, 1, 5), 2, "nearest", "half_pixel", "round_prefer_ceil", ref=_picked(1, 3), grad=False),
    Sample("resize1d", T(1, 1, 4), 2, "nearest", "half_pixel", "round_prefer_floor", ref=_picked(0, 2), grad=False),
    Sample("resize1d", T(1, 1, 4), 3, "nearest", "asymmetric", "ceil", ref=_picked(0, 2, 3), grad=False),
    Sample("resize1d", T(1, 2, 4), 1, "linear", "pytorch_half_pixel", ref=_picked(0), grad=False),
    Sample("resize2d", T(2, 3, 4, 5), (7, 3), ref=_resize),
    Sample("resize2d", T(1, 2, 4, 5), (9, 8), "linear", "align_corners", ref=_resize),
    Sample("resize2d", T(1, 2, 5, 6), (8, 4), "cubic", ref=_resize),
    Sample("resize2d", T(1, 2, 3, 5), (6, 7), "nearest", "asymmetric", ref=_resize),
    Sample("resize2d", T(1, 2, 3, 5), (6, 7), "nearest", "tf_half_pixel_for_nn", ref=_resize),
    Sample("resize3d", T(1, 2, 2, 3, 4), (3, 2, 5), ref=_resize),
    Sample("resize1d_dx", T(2, 3, 8), (2, 3, 5), ref=_resize_dx),
    Sample("resize2d_dx", T(1, 2, 7, 3), (1, 2, 4, 5), ref=_resize_dx),
    Sample("resize3d_dx", T(1, 2, 3, 2, 5), (1, 2, 2, 3, 4), ref=_resize_dx),
]

ERRORS = [
    ErrorCase("non_max_suppression", T(1, 3, 5), T(1, 3), error=TypeInferenceError, match="(batch, n, 4)"),
    ErrorCase("non_max_suppression", T(1, 3, 4), T(1, 2), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("resize1d", T(2, 3), 4, error=TypeInferenceError, match="expected rank 3"),
    ErrorCase("resize2d", T(1, 1, 2, 2), (2, 0), error=TypeInferenceError, match="each at least 1"),
    ErrorCase("resize2d", T(1, 1, 2, 0), 2, error=TypeInferenceError, match="nothing but the batch may be empty"),
    ErrorCase("resize3d", T(1, 1, 2, 2, 2), (2, 2), error=TypeInferenceError, match="size"),
    ErrorCase("resize2d_dx", T(1, 1, 2, 2), (2, 1, 3, 3), error=TypeInferenceError, match="equal shapes"),
]
