"""Boxes of detected objects: candidates, suppression, pooling of regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.ops.detection import at_least
from meta.functional.image import roi_pool as pooled


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
        (np.arange(int(height)) + offsets[0]) * step[0], (np.arange(int(width)) + offsets[1]) * step[1], indexing="ij"
    )
    centres = np.stack([columns, rows, columns, rows], -1)[:, :, None, :]
    boxes = centres + np.array([(-w / 2, -h / 2, w / 2, h / 2) for w, h in sides])
    boxes = boxes.clip(0.0, 1.0) if call.flag("clip") else boxes
    return constant(np.reshape(boxes, (1, -1, 4)).astype(x.dtype))


@converter("vision.multibox_transform_loc")
def multibox_transform_loc(call: OpCall) -> Any:
    """The boxes whose best class exceeds a probability, (class, probability, corners), and their number; the remaining
    rows are -1. Class 0 is the background."""
    scores, moves, anchors = call.tensors(3)
    if call.flag("keep_background"):
        call.refuse("keep_background", "False")
    batch, _, count = scores.shape
    variances = call.floats("variances", (0.1, 0.1, 0.2, 0.2))
    likely = meta.strided_slice(scores, (0, 1), scores.shape[:2])
    best = meta.max(likely, (1,))
    kind = meta.cast(meta.argmax(likely, 1), scores.dtype)
    corners = _moved(meta.reshape(moves, (batch, count, 4)), anchors, variances, call.flag("clip", True))
    parts = [meta.stack([kind, best], -1), corners]
    return _first(meta.concatenate(parts, -1), meta.greater_equal(best, call.float("threshold", 0.01)))[:2]


def _moved(moves: Any, anchors: Any, variances: tuple[float, ...], clip: bool) -> Any:
    """Anchors moved and scaled by the predictions of a network."""
    low, high = meta.split(anchors, 2, 2)
    size, centre = meta.subtract(high, low), meta.divide(meta.add(low, high), 2.0)
    scaled = meta.multiply(moves, constant(np.asarray(variances, moves.dtype)))
    shift, scale = meta.split(scaled, 2, 2)
    middle = meta.add(meta.multiply(shift, size), centre)
    half = meta.divide(meta.multiply(meta.exp(scale), size), 2.0)
    corners = meta.concatenate([meta.subtract(middle, half), meta.add(middle, half)], 2)
    return meta.clip(corners, 0.0, 1.0) if clip else corners


def _first(rows: Any, selected: Any) -> tuple[Any, Any, Any]:
    """The selected rows (batch, n, ...) in order, then rows of -1; their number, int32; their indices, int32."""
    count = meta.sum(meta.cast(selected, "int32"), (1,))
    order = meta.argsort(meta.cast(meta.logical_not(selected), "int32"), 1)
    is_valid = meta.less(meta.arange(0, selected.shape[1], 1, "int32"), meta.expand_dims(meta.cast(count, "int32"), 1))
    index = meta.where(is_valid, meta.cast(order, "int32"), -1)
    moved = meta.gather_nd(rows, meta.expand_dims(order, 0), 1)
    return meta.where(meta.expand_dims(is_valid, -1), moved, -1), meta.cast(count, "int32"), index


@converter("vision.get_valid_counts")
def get_valid_counts(call: OpCall) -> Any:
    """The number of boxes with a score above a threshold, those boxes first, and their indices."""
    x, *rest = call.tensors(1, 2)
    score, kind = call.int("score_index", 1), call.int("id_index", 0)
    attribute = call.get("score_threshold")
    threshold = rest[0] if rest else call.tensor(0.0 if attribute is None else attribute, x.dtype)
    valid = meta.greater(_column(x, score), meta.cast(threshold, x.dtype))
    if kind >= 0:
        valid = meta.logical_and(valid, meta.greater_equal(_column(x, kind), 0))
    boxes, count, index = _first(x, valid)
    return count, boxes, index


def _column(x: Tensor, index: int) -> Any:
    """x[:, :, index]"""
    return meta.squeeze(meta.strided_slice(x, (0, 0, index), (*x.shape[:2], index + 1)), (2,))


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
    corners = meta.strided_slice(x, (0, 0, start), (*x.shape[:2], start + 4))
    low, high = meta.split(meta.cast(corners, "float64"), 2, 2)
    boxes = meta.concatenate([meta.minimum(low, high), meta.maximum(low, high)], 2)
    if class_index >= 0:
        kind = _column(x, class_index)
        score = meta.where(meta.less(kind, 0), 0.0, score)
        boxes = boxes if forced else _apart(boxes, meta.cast(kind, "float64"))
    selected, count = meta.non_max_suppression(
        boxes, meta.cast(score, "float64"), at_least(threshold), 0.0, limit if limit >= 0 else None
    )
    is_selected = meta.greater_equal(selected, 0)
    if not call.flag("return_indices", True):
        rows = meta.gather_nd(x, meta.expand_dims(meta.maximum(selected, 0), 0), 1)
        return meta.where(meta.expand_dims(is_selected, -1), rows, -1)
    original = meta.gather(indices, 1, meta.maximum(selected, 0))
    return meta.where(is_selected, meta.cast(original, "int32"), -1), meta.expand_dims(meta.cast(count, "int32"), 1)


def _ranked(score: Any, valid: Any, top: int) -> Any:
    """Scores, with 0 for boxes after the valid ones and for boxes below the best `top`."""
    is_valid = meta.less(meta.arange(0, score.shape[1], 1, "int32"), meta.expand_dims(meta.cast(valid, "int32"), 1))
    score = meta.where(is_valid, score, 0)
    if not 0 < top < score.shape[1]:
        return score
    order = meta.argsort(score, 1, True)
    rank = meta.argsort(order, 1)
    return meta.where(meta.less(rank, top), score, 0)


def _apart(boxes: Tensor, kind: Any) -> Any:
    """Boxes moved so that boxes of different classes do not overlap."""
    span = meta.add(meta.subtract(meta.max(boxes), meta.min(boxes)), 1.0)
    return meta.add(boxes, meta.expand_dims(meta.multiply(kind, span), 2))


@converter("vision.roi_pool")
def roi_pool(call: OpCall) -> Any:
    """The largest element in each bin of each region; bins without elements are 0 (R. Girshick, "Fast R-CNN", 2015)."""
    x, rois = call.tensors(2)
    call.only("layout", "NCHW")
    return pooled(x, rois, call.sizes("pooled_size"), call.float("spatial_scale"))
