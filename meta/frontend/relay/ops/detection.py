"""Operators of detectors that select boxes by class, propose regions, or reorder maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meta
from meta.frontend.relay.convert.call import OpCall, constant, converter


def at_least(threshold: float) -> float:
    """The threshold of `non_max_suppression`, which drops boxes above it, that drops those at `threshold` too."""
    return float(np.nextafter(np.float32(threshold), np.float32(0)))


@converter("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(call: OpCall) -> Any:
    """Boxes selected for each class separately, in the order of batch, class and descending score.

    ONNX's form: (batch, class, box) rows, and the number of rows that count. TensorFlow's: for each batch (class, box)
    rows, scores, and that number. The other rows are 0."""
    boxes, scores, limit, iou, least = call.tensors(5)
    form = call.only("output_format", "onnx", "tensorflow")
    iou_threshold = float(call.number(iou, "iou_threshold"))
    score_threshold = float(call.number(least, "score_threshold"))
    largest = int(call.number(limit, "max_output_boxes_per_class"))
    if iou_threshold <= 0 or score_threshold < 0:
        call.refuse(f"iou_threshold {iou_threshold} and score_threshold {score_threshold}", "above 0, and from 0")
    batch, classes, count = scores.shape
    low, high = meta.split(meta.cast(boxes, "float64"), 2, 2)
    corners = meta.concatenate([meta.minimum(low, high), meta.maximum(low, high)], 2)
    spread = meta.broadcast_to(meta.expand_dims(corners, 1), (batch, classes, count, 4))
    position, counts = meta.non_max_suppression(
        meta.reshape(spread, (batch * classes, count, 4)),
        meta.cast(meta.reshape(scores, (batch * classes, count)), "float64"),
        at_least(iou_threshold),
        score_threshold,
        largest if largest > 0 else None,
    )
    box = meta.reshape(position, (batch, classes, count))
    kind = meta.broadcast_to(meta.reshape(meta.arange(0, classes, 1, "int64"), (1, classes, 1)), box.shape)
    if form == "tensorflow":
        selected_scores = meta.gather(scores, 2, meta.maximum(box, 0))
        rows = meta.reshape(meta.stack([kind, box], -1), (batch, classes * count, 2))
        rows, selected_scores = _compacted(
            [rows, meta.reshape(selected_scores, (batch, classes * count))], meta.reshape(box, (batch, -1))
        )
        return rows, selected_scores, meta.sum(meta.reshape(counts, (batch, classes)), (1,))
    image = meta.broadcast_to(meta.reshape(meta.arange(0, batch, 1, "int64"), (batch, 1, 1)), box.shape)
    rows = meta.reshape(meta.stack([image, kind, box], -1), (1, batch * classes * count, 3))
    (rows,) = _compacted([rows], meta.reshape(box, (1, -1)))
    return meta.squeeze(rows, (0,)), meta.sum(counts, (0,), True)


def _compacted(parts: list[Any], box: Any) -> list[Any]:
    """The rows (n, m, ...) of boxes from 0 first, in order, then zeros."""
    unused = meta.less(box, 0)
    order = meta.argsort(meta.cast(unused, "int32"), 1)
    index, empty = meta.expand_dims(order, 0), meta.gather(unused, 1, order)
    moved = [meta.gather_nd(part, index, 1) for part in parts]
    return [meta.where(meta.expand_dims(empty, -1) if part.ndim == 3 else empty, 0, part) for part in moved]


@converter("vision.proposal")
def proposal(call: OpCall) -> Any:
    """Regions around anchors moved by a network, with the highest scores and little overlap: rows of batch, left, top,
    right, bottom (S. Ren et al., "Faster R-CNN", 2015). With too few regions they repeat."""
    scores, moves, sizes = call.tensors(3)
    scales, ratios = call.floats("scales", (4.0, 8.0, 16.0, 32.0)), call.floats("ratios", (0.5, 1.0, 2.0))
    stride, iou_loss = call.int("feature_stride", 16), call.flag("iou_loss")
    before, after = call.int("rpn_pre_nms_top_n", 6000), call.int("rpn_post_nms_top_n", 300)
    smallest = call.int("rpn_min_size", 16)
    batch, _, height, width = scores.shape
    count = len(scales) * len(ratios)
    call.check_size(height, width, count, 4)
    anchors = constant(_anchors(scales, ratios, stride, height, width).astype(moves.dtype))
    delta = meta.reshape(meta.transpose(meta.reshape(moves, (batch, count, 4, height, width)), (0, 3, 4, 1, 2)),
                         (batch, height * width * count, 4))  # fmt: skip
    corners = meta.add(anchors, delta) if iou_loss else _regressed(anchors, delta)
    im_height, im_width, im_scale = (meta.reshape(part, (batch, 1, 1)) for part in meta.split(sizes, 3, 1))
    edge = meta.subtract(meta.concatenate([im_width, im_height, im_width, im_height], 2), 1.0)
    corners = meta.maximum(meta.minimum(corners, edge), 0.0)
    low, high = meta.split(corners, 2, 2)
    least = meta.multiply(im_scale, float(smallest))
    small = meta.any(meta.less(meta.add(meta.subtract(high, low), 1.0), least), (2,))
    half = meta.divide(least, 2.0)
    grown = meta.concatenate([meta.subtract(low, half), meta.add(high, half)], 2)
    corners = meta.where(meta.expand_dims(small, 2), grown, corners)
    inside = _inside(im_height, im_width, stride, height, width, count)
    score = meta.transpose(meta.strided_slice(scores, (0, count), (batch, 2 * count)), (0, 2, 3, 1))
    score = meta.reshape(score, (batch, height * width * count))
    score = meta.where(meta.logical_or(small, meta.logical_not(inside)), -1.0, score)
    order = meta.argsort(score, 1, True)
    if 0 < before < height * width * count:
        order = meta.strided_slice(order, (0, 0), (batch, before))
    return _first(corners, order, call.float("threshold", 0.7), after)


def _first(corners: Any, order: Any, threshold: float, after: int) -> Any:
    """`after` regions of each image, in order, without those that overlap an earlier one too much. The last row and
    column of pixels belong to a region, so that its size is a difference plus 1."""
    batch, count = order.shape
    best = meta.gather_nd(corners, meta.expand_dims(order, 0), 1)
    low, high = meta.split(meta.cast(best, "float64"), 2, 2)
    rank = meta.broadcast_to(meta.cast(meta.arange(count, 0, -1, "int64"), "float64"), (batch, count))
    selection, number = meta.non_max_suppression(
        meta.concatenate([low, meta.add(high, 1.0)], 2), rank, threshold, None, None
    )
    turn = meta.mod(meta.expand_dims(meta.arange(0, after, 1, "int64"), 0), meta.expand_dims(number, 1))
    rows = meta.gather_nd(best, meta.expand_dims(meta.gather(selection, 1, turn), 0), 1)
    image = meta.cast(meta.broadcast_to(meta.reshape(meta.arange(0, batch, 1, "int64"), (batch, 1, 1)),
                                        (batch, after, 1)), best.dtype)  # fmt: skip
    return meta.reshape(meta.concatenate([image, rows], 2), (batch * after, 5))


def _anchors(scales: Any, ratios: Any, stride: int, height: int, width: int) -> np.ndarray[Any, Any]:
    """Corners of the anchors around each cell, (height * width * anchors, 4)."""
    centre = 0.5 * (stride - 1.0)
    boxes: list[tuple[float, ...]] = []
    for ratio in ratios:
        side = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
        for scale in scales:
            w = side * scale
            h = math.floor(w / scale * ratio + 0.5) * scale
            boxes.append(
                (centre - 0.5 * (w - 1), centre - 0.5 * (h - 1), centre + 0.5 * (w - 1), centre + 0.5 * (h - 1))
            )
    rows, columns = np.mgrid[0:height, 0:width] * float(stride)
    cells = np.reshape(np.stack([columns, rows, columns, rows], -1), (-1, 1, 4))
    return np.reshape(cells + np.asarray(boxes), (-1, 4))


def _regressed(anchors: Any, delta: Any) -> Any:
    """Anchors whose centres are moved by a part of their size, and whose sizes are scaled."""
    low, high = meta.split(anchors, 2, 1)
    size = meta.add(meta.subtract(high, low), 1.0)
    centre = meta.add(low, meta.multiply(meta.subtract(size, 1.0), 0.5))
    shift, scale = meta.split(delta, 2, 2)
    middle = meta.add(meta.multiply(shift, size), centre)
    reach = meta.multiply(meta.subtract(meta.multiply(meta.exp(scale), size), 1.0), 0.5)
    return meta.concatenate([meta.subtract(middle, reach), meta.add(middle, reach)], 2)


def _inside(im_height: Any, im_width: Any, stride: int, height: int, width: int, count: int) -> Any:
    """Whether the cell of each anchor lies in the image."""
    rows, columns = np.mgrid[0:height, 0:width]
    parts: list[Any] = []
    for cells, size in ((rows, im_height), (columns, im_width)):
        index = constant(np.repeat(cells.reshape(-1), count).astype("int32"))
        last = meta.cast(meta.divide(meta.squeeze(size, (2,)), float(stride)), "int32")
        parts.append(meta.less(index, last))
    return meta.logical_and(parts[0], parts[1])


@converter("vision.yolo_reorg")
def yolo_reorg(call: OpCall) -> Any:
    """Elements of a map moved to channels, as Darknet does: x is read as (in / stride ** 2, height * stride,
    width * stride), whose elements at each of stride ** 2 offsets are the channels of a group."""
    (x,) = call.tensors(1)
    stride = call.int("stride")
    n, channels, height, width = x.shape
    if stride < 1 or channels % (stride * stride) or height % stride or width % stride:
        call.refuse(f"stride {stride} for shape {x.shape}", "a stride that divides the sizes")
    groups = channels // (stride * stride)
    wide = meta.reshape(x, (n, groups, height, stride, width, stride))
    moved = meta.transpose(wide, (0, 3, 5, 1, 2, 4))
    return meta.reshape(moved, (n, channels * stride * stride, height // stride, width // stride))
