"""Boxes of detected objects: candidates, suppression, pooling of regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meta._generated import functions as F
from meta.frontend.relay.convert.call import OpCall, constant
from meta.frontend.relay.convert.table import converter
from meta.frontend.relay.ops.unary import rounded


@converter("vision.multibox_prior")
def multibox_prior(call: OpCall) -> Any:
    """Boxes of several sizes and shapes around the centre of each cell of a feature map, (1, cells * boxes, 4): left,
    top, right, bottom, as fractions of the image (W. Liu et al., "SSD", 2016)."""
    (x,) = call.tensors(1)
    height, width = x.shape[2:]
    sizes, ratios = call.floats("sizes", (1.0,)), call.floats("ratios", (1.0,))
    steps, offsets = call.floats("steps", (-1.0, -1.0)), call.floats("offsets", (0.5, 0.5))
    sides = [(s * height / width, s) for s in sizes]
    sides += [(sizes[0] * height / width * math.sqrt(r), sizes[0] / math.sqrt(r)) for r in ratios[1:]]
    call.check_size(height, width, len(sides), 4)
    step = [each if each > 0 else 1.0 / size for each, size in zip(steps, (height, width), strict=True)]
    rows, columns = np.meshgrid(
        (np.arange(height) + offsets[0]) * step[0], (np.arange(width) + offsets[1]) * step[1], indexing="ij"
    )
    centres = np.stack([columns, rows, columns, rows], -1)[:, :, None, :]
    boxes = centres + np.array([(-w / 2, -h / 2, w / 2, h / 2) for w, h in sides])
    boxes = np.clip(boxes, 0.0, 1.0) if call.flag("clip") else boxes
    return constant(boxes.reshape(1, -1, 4).astype(x.dtype))


@converter("vision.multibox_transform_loc")
def multibox_transform_loc(call: OpCall) -> Any:
    """The boxes whose best class exceeds a probability, (class, probability, corners), and their number; the remaining
    rows are -1. Class 0 is the background."""
    scores, moves, anchors = call.tensors(3)
    if call.flag("keep_background"):
        call.refuse("keep_background", "False")
    batch, _, count = scores.shape
    variances = call.floats("variances", (0.1, 0.1, 0.2, 0.2))
    likely = F.strided_slice(scores, (0, 1), scores.shape[:2])
    best = F.max(likely, (1,))
    kind = F.cast(F.argmax(likely, 1), scores.dtype)
    corners = _moved(F.reshape(moves, (batch, count, 4)), anchors, variances, call.flag("clip", True))
    parts = [F.stack([kind, best], -1), corners]
    return _first(F.concatenate(parts, -1), F.greater_equal(best, call.float("threshold", 0.01)))[:2]


def _moved(moves: Any, anchors: Any, variances: tuple[float, ...], clip: bool) -> Any:
    """Anchors moved and scaled by the predictions of a network."""
    low, high = F.split(anchors, 2, 2)
    size, centre = F.subtract(high, low), F.divide(F.add(low, high), 2.0)
    scaled = F.multiply(moves, constant(np.asarray(variances, moves.dtype)))
    shift, scale = F.split(scaled, 2, 2)
    middle = F.add(F.multiply(shift, size), centre)
    half = F.divide(F.multiply(F.exp(scale), size), 2.0)
    corners = F.concatenate([F.subtract(middle, half), F.add(middle, half)], 2)
    return F.clip(corners, 0.0, 1.0) if clip else corners


def _first(rows: Any, selected: Any) -> tuple[Any, Any, Any]:
    """The selected rows (batch, n, ...) in order, then rows of -1; their number, int32; their indices, int32."""
    count = F.sum(F.cast(selected, "int32"), (1,))
    order = F.argsort(F.cast(F.logical_not(selected), "int32"), 1)
    here = F.less(F.arange(0, selected.shape[1], 1, "int32"), F.expand_dims(F.cast(count, "int32"), 1))
    index = F.where(here, F.cast(order, "int32"), -1)
    moved = F.gather_nd(rows, F.expand_dims(order, 0), 1)
    return F.where(F.expand_dims(here, -1), moved, -1), F.cast(count, "int32"), index


@converter("vision.get_valid_counts")
def get_valid_counts(call: OpCall) -> Any:
    """The number of boxes with a score above a threshold, those boxes first, and their indices."""
    x, *rest = call.tensors(1, 2)
    score, kind = call.int("score_index", 1), call.int("id_index", 0)
    attribute = call.get("score_threshold")
    threshold = rest[0] if rest else call.tensor(0.0 if attribute is None else attribute, x.dtype)
    valid = F.greater(_column(x, score), F.cast(threshold, x.dtype))
    if kind >= 0:
        valid = F.logical_and(valid, F.greater_equal(_column(x, kind), 0))
    boxes, count, index = _first(x, valid)
    return count, boxes, index


def _column(x: Any, index: int) -> Any:
    """x[:, :, index]"""
    return F.squeeze(F.strided_slice(x, (0, 0, index), (*x.shape[:2], index + 1)), (2,))


@converter("vision.non_max_suppression")
def non_max_suppression(call: OpCall) -> Any:
    """Boxes by descending score, without those that overlap an earlier one (of their class) too much: their indices and
    number, or their rows followed by rows of -1."""
    x, valid, indices, max_output, iou = call.tensors(5)
    start, score_index, class_index = call.int("coord_start", 2), call.int("score_index", 1), call.int("id_index", 0)
    top, forced = call.int("top_k", -1), call.flag("force_suppress")
    if not call.flag("return_indices", True) and not call.flag("invalid_to_bottom"):
        call.refuse("results in the order of the input", "return_indices or invalid_to_bottom")
    call.flag("invalid_to_bottom")
    threshold, limit = float(call.number(iou, "iou_threshold")), int(call.number(max_output, "max_output_size"))
    if threshold <= 0:
        call.refuse(f"iou_threshold is {threshold}", "a threshold above 0")
    score = _ranked(_column(x, score_index), valid, top)
    corners = F.strided_slice(x, (0, 0, start), (*x.shape[:2], start + 4))
    low, high = F.split(F.cast(corners, "float64"), 2, 2)
    boxes = F.concatenate([F.minimum(low, high), F.maximum(low, high)], 2)
    if class_index >= 0:
        kind = _column(x, class_index)
        score = F.where(F.less(kind, 0), 0.0, score)
        boxes = boxes if forced else _apart(boxes, F.cast(kind, "float64"))
    # Relay suppresses at the threshold, `non_max_suppression` above it.
    least = float(np.nextafter(np.float32(threshold), np.float32(0)))
    selected, count = F.non_max_suppression(boxes, F.cast(score, "float64"), least, 0.0, limit if limit >= 0 else None)
    kept = F.greater_equal(selected, 0)
    if not call.flag("return_indices", True):
        rows = F.gather_nd(x, F.expand_dims(F.maximum(selected, 0), 0), 1)
        return F.where(F.expand_dims(kept, -1), rows, -1)
    original = F.gather(indices, 1, F.maximum(selected, 0))
    return F.where(kept, F.cast(original, "int32"), -1), F.expand_dims(F.cast(count, "int32"), 1)


def _ranked(score: Any, valid: Any, top: int) -> Any:
    """Scores, with 0 for boxes after the valid ones and for boxes below the best `top`."""
    here = F.less(F.arange(0, score.shape[1], 1, "int32"), F.expand_dims(F.cast(valid, "int32"), 1))
    score = F.where(here, score, 0)
    if not 0 < top < score.shape[1]:
        return score
    order = F.argsort(score, 1, True)
    rank = F.argsort(order, 1)
    return F.where(F.less(rank, top), score, 0)


def _apart(boxes: Any, kind: Any) -> Any:
    """Boxes moved so that those of different classes do not overlap."""
    span = F.add(F.subtract(F.max(boxes), F.min(boxes)), 1.0)
    return F.add(boxes, F.expand_dims(F.multiply(kind, span), 2))


@converter("vision.roi_pool")
def roi_pool(call: OpCall) -> Any:
    """The largest element in each bin of each region; bins without elements are 0 (R. Girshick, "Fast R-CNN", 2015)."""
    x, rois = call.tensors(2)
    call.only("layout", "NCHW")
    size, scale = call.sizes("pooled_size"), call.float("spatial_scale")
    batch, *corners = (F.squeeze(part, (1,)) for part in F.split(rois, 5, 1))
    x1, y1, x2, y2 = (F.cast(rounded(F.multiply(c, scale)), "int64") for c in corners)
    images = F.take(x, F.cast(batch, "int64"), 0)
    lowest = float(np.finfo(x.dtype).min)
    columns = _bins(x1, x2, size[1], x.shape[3], rois.dtype)
    inside = F.expand_dims(columns, (1, 2))
    wide = F.max(F.where(inside, F.expand_dims(images, 3), lowest), (4,))
    rows = F.expand_dims(_bins(y1, y2, size[0], x.shape[2], rois.dtype), (1, 4))
    pooled = F.max(F.where(rows, F.expand_dims(wide, 2), lowest), (3,))
    some = F.logical_and(F.expand_dims(F.any(rows, (3,)), ()), F.expand_dims(F.any(columns, (2,)), (1, 2)))
    return F.where(some, pooled, 0)


def _bins(first: Any, last: Any, bins: int, size: int, dtype: str) -> Any:
    """Whether the elements (r, bins, size) of an axis lie in the bins of each region."""
    length = F.cast(F.maximum(F.add(F.subtract(last, first), 1), 1), dtype)
    width = F.expand_dims(F.divide(length, float(bins)), 1)
    steps = F.arange(0, bins, 1, dtype)
    begin = F.add(F.cast(F.floor(F.multiply(steps, width)), "int64"), F.expand_dims(first, 1))
    end = F.add(F.cast(F.ceil(F.multiply(F.add(steps, 1.0), width)), "int64"), F.expand_dims(first, 1))
    position = F.arange(0, size, 1, "int64")
    return F.logical_and(F.greater_equal(position, F.expand_dims(begin, 2)), F.less(position, F.expand_dims(end, 2)))
