"""Gathering and scattering elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, row
from meta.frontend.onnx.ops._values import axis_of, is_host, number, row_shape, sizes, tensor
from meta.functional._checks import as_dtype


def from_front(indices: Any, size: Any) -> Any:
    """Positions counted from the front: negative ones count from the end of an axis."""
    if isinstance(indices, np.ndarray):
        return np.where(indices < 0, indices + size, indices)
    return meta.where(meta.less(indices, 0), meta.add(indices, size), indices)


def _fold_gather(data: Any, indices: Any, *, axis: int = 0) -> Any:
    return np.asarray(np.take(data, indices.astype("int64"), axis), dtype=data.dtype)


@row("Gather", raw=True)
def gather(node: Node, data: Any, indices: Any, *, axis: int = 0) -> Any:
    place = axis_of("Gather", axis, data.ndim)
    if is_host(data) and is_host(indices):
        return _fold_gather(data, indices, axis=axis)
    if is_host(indices) and indices.ndim == 0:
        size, index = data.shape[place], int(indices)
        if isinstance(size, int) and not -size <= index < size:
            raise TypeInferenceError(
                "Gather", f"index {index} is out of range for size {size}", f"{-size} to {size - 1}"
            )
        return meta.select(data, place, index)
    return meta.take(tensor(data), tensor(indices), place)


@row("GatherElements", since=11)
def gather_elements(node: Node, data: Tensor, indices: Tensor, *, axis: int = 0) -> Any:
    place = axis_of("GatherElements", axis, data.ndim)
    return meta.gather(data, place, from_front(indices, data.shape[place]))


def _tuples_from_front(indices: Tensor, extents: tuple[Any, ...]) -> Any:
    """Index tuples along the last axis of `indices`, counted from the front, along a first axis, as meta has them."""
    ends = tensor(sizes(extents))
    return meta.moveaxis(meta.where(meta.less(indices, 0), meta.add(indices, ends), indices), -1, 0)


@row("GatherND", since=11)
def gather_nd(node: Node, data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Any:
    count = indices.shape[-1]
    extents = data.shape[batch_dims : batch_dims + count]
    return meta.gather_nd(data, _tuples_from_front(as_dtype(indices, "int64"), extents), batch_dims)


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(op: str, name: str) -> Any:
    if name not in _REDUCTIONS:
        raise TypeInferenceError(op, f"reduction is {name!r}", " or ".join(_REDUCTIONS))
    return _REDUCTIONS[name]


@row("ScatterElements", "Scatter", since=9)
def scatter_elements(
    node: Node, data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Any:
    place = axis_of("ScatterElements", axis, data.ndim)
    positions = from_front(indices, data.shape[place])
    return meta.scatter_elements(data, place, positions, updates, _reduction("ScatterElements", reduction))


@row("ScatterND", since=11)
def scatter_nd(node: Node, data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Any:
    positions = _tuples_from_front(as_dtype(indices, "int64"), data.shape[: indices.shape[-1]])
    return meta.scatter_nd(data, positions, updates, _reduction("ScatterND", reduction))


@row("TensorScatter", since=24)
def tensor_scatter(
    node: Node, past_cache: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2,
    mode: str = "linear",
) -> Any:  # fmt: skip
    """Each example of the batch is written from its own position on; circular positions begin again at 0."""
    place = axis_of("TensorScatter", axis, past_cache.ndim)
    if mode not in ("linear", "circular"):
        raise TypeInferenceError("TensorScatter", f"mode is {mode!r}", "linear or circular")
    rank, size = past_cache.ndim, past_cache.shape[place]
    steps = meta.reshape(meta.arange(0, update.shape[place]), row_shape(update.shape[place], place, rank))
    if write_indices is not None:
        first = meta.reshape(write_indices, row_shape(write_indices.shape[0], 0, rank))
        steps = meta.add(steps, first)
    positions = meta.mod(steps, size) if mode == "circular" else steps
    return meta.scatter_elements(past_cache, place, meta.broadcast_to(positions, update.shape), update, "update")


# --- one hot ---------------------------------------------------------------------------------------------------------


@row("OneHot", since=9, constants=("depth",))
def one_hot(node: Node, indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Any:
    """Positions out of range give only off values."""
    size = int(number(depth, "depth"))
    place = axis_of("OneHot", axis, indices.ndim + 1)
    index = from_front(as_dtype(indices, "int64"), size)
    hot = meta.one_hot(index, size, "bool", place)
    off, on = meta.split(values, 2, 0)
    return meta.where(hot, meta.reshape(on, ()), meta.reshape(off, ()))


# --- sizes that depend on values -------------------------------------------------------------------------------------


@row("NonZero", since=9)
def nonzero(node: Node, X: Tensor) -> Any:
    """(rank, number of elements): a 0-d input is a vector of one element, as in onnxruntime."""
    return meta.transpose(meta.argwhere(X if X.ndim else meta.reshape(X, (1,))), (1, 0))


@row("Compress", since=9)
def compress(node: Node, input: Tensor, condition: Tensor, *, axis: int | None = None) -> Any:
    """The slices, or elements of the flattened input, where the condition holds; it may be shorter than the axis."""
    place = 0 if axis is None else axis_of("Compress", axis, input.ndim)
    x = meta.reshape(input, (-1,)) if axis is None else input
    return meta.take(x, meta.reshape(meta.argwhere(condition), (-1,)), place)


@row("Unique", since=11)
def unique(node: Node, X: Tensor, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Values, and of each value its first position, of each position its value, and counts."""
    node.constant(X, "X")  # the number of values
    x = meta.reshape(X, (-1,)) if axis is None else X
    place = 0 if axis is None else axis_of("Unique", axis, x.ndim)
    values, inverse, counts = meta.unique(x, place if x.ndim > 1 else None)
    count, size = values.shape[place], x.shape[place]
    positions = meta.arange(0, size)
    first = meta.scatter_elements(meta.full((count,), size, "int64"), 0, inverse, positions, "min")
    if sorted:
        return values, first, inverse, counts
    order = meta.argsort(first)
    rank = meta.scatter_elements(meta.zeros((count,), "int64"), 0, order, meta.arange(0, count), "update")
    return meta.take(values, order, place), meta.take(first, order), meta.take(rank, inverse), meta.take(counts, order)


# --- order -----------------------------------------------------------------------------------------------------------


@row("TopK", since=10, constants=("K",))
def topk(node: Node, X: Tensor, K: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    values, positions = meta.topk(X, int(number(K, "K")), axis_of("TopK", axis, X.ndim), bool(largest))
    return values, as_dtype(positions, "int64")


row("TopK")(lambda node, X, *, k, axis=-1: topk(node, X, np.array(k), axis=axis))


@row("ReverseSequence", since=10)
def reverse_sequence(
    node: Node, input: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Any:  # fmt: skip
    """Each example with its first steps, as many as its length, in reverse."""
    batch, time = (axis_of("ReverseSequence", a, input.ndim) for a in (batch_axis, time_axis))
    return meta.reverse_sequence(input, sequence_lens, time, batch)


@row("Trilu", since=14, constants=("k",))
def trilu(node: Node, input: Tensor, k: Any = None, *, upper: int = 1) -> Any:
    offset = 0 if k is None else int(number(k, "k"))
    return (meta.triu if upper else meta.tril)(input, offset)


@row("NonMaxSuppression", since=10, constants=("max_output_boxes_per_class", "iou_threshold", "score_threshold"))
def non_max_suppression(
    node: Node, boxes: Tensor, scores: Tensor, max_output_boxes_per_class: Any = None, iou_threshold: Any = None,
    score_threshold: Any = None, *, center_point_box: int = 0,
) -> Any:  # fmt: skip
    """(batch, class, box) of the boxes that are kept, by class and falling score; at most so many of a class."""
    limit = 0 if max_output_boxes_per_class is None else int(number(max_output_boxes_per_class, "limit"))
    overlap = 0.0 if iou_threshold is None else float(number(iou_threshold, "iou_threshold"))
    least = None if score_threshold is None else float(number(score_threshold, "score_threshold"))
    if limit <= 0:
        return meta.zeros((0, 3), "int64")
    batches, classes, count = scores.shape
    corners = meta.expand_dims(_corners(boxes, bool(center_point_box)), 1)
    repeated = meta.reshape(meta.broadcast_to(corners, (batches, classes, count, 4)), (batches * classes, count, 4))
    flat = meta.reshape(scores, (batches * classes, count))
    indices, _ = meta.non_max_suppression(repeated, flat, overlap, least, limit)
    places = meta.argwhere(meta.greater_equal(indices, 0))
    rows = meta.select(places, 1, 0)
    boxes_selected = as_dtype(meta.gather_nd(indices, meta.transpose(places, (1, 0))), "int64")
    return meta.stack([meta.floor_divide(rows, classes), meta.mod(rows, classes), boxes_selected], 1)


def _corners(boxes: Tensor, centred: bool) -> Any:
    """Boxes as their lower and upper corners."""
    a, b, c, d = meta.split(boxes, 4, 2)
    if centred:
        half_width, half_height = meta.multiply(c, 0.5), meta.multiply(d, 0.5)
        a, b, c, d = a - half_width, b - half_height, a + half_width, b + half_height
    low = (meta.minimum(a, c), meta.minimum(b, d))
    return meta.concatenate([*low, meta.maximum(a, c), meta.maximum(b, d)], 2)
