"""Sequences, which are lists, and optional values: one that is present is the value itself."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.frontend.onnx.errors import OnnxError
from meta.frontend.onnx.ops._row import MAX_UNROLLED, Node, refuse, row
from meta.frontend.onnx.ops._values import axis_of, tensor, value_of

row("SequenceEmpty", raw=True, folds=False)(lambda node, *, dtype=1: [])
row("SequenceConstruct", raw=True, folds=False)(lambda node, *inputs: list(inputs))
row("SequenceLength", raw=True)(lambda node, input_sequence: np.asarray(len(_items(node, input_sequence)), np.int64))


@row("SequenceAt", raw=True)
def sequence_at(node: Node, input_sequence: Any, position: Any) -> Any:
    items = _items(node, input_sequence)
    return items[_position(node, position, len(items) - 1, len(items))]


@row("SequenceInsert", raw=True)
def sequence_insert(node: Node, input_sequence: Any, tensor: Any, position: Any = None) -> Any:
    items = _items(node, input_sequence)
    place = len(items) if position is None else _position(node, position, len(items), len(items))
    return [*items[:place], tensor, *items[place:]]


@row("SequenceErase", raw=True)
def sequence_erase(node: Node, input_sequence: Any, position: Any = None) -> Any:
    items = _items(node, input_sequence)
    place = _position(node, np.asarray(-1) if position is None else position, len(items) - 1, len(items))
    return [*items[:place], *items[place + 1 :]]


@row("SplitToSequence", raw=True, folds=False)
def split_to_sequence(node: Node, input: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    x = tensor(input)
    place = axis_of("SplitToSequence", axis, x.ndim)
    size = x.shape[place]
    if not isinstance(size, int):
        value_of(node, x, f"the size of axis {axis}")
    if split is None:
        parts = _equal_parts(node, x, 1, place)
        return parts if keepdims else [meta.squeeze(p, (place,)) for p in parts]
    lengths = value_of(node, split, "split")
    if lengths.ndim:
        return _parts(node, x, [int(n) for n in lengths], place)
    step = int(lengths)
    if step <= 0:
        raise OnnxError("onnx", f"{node.name}: split is {step}", "1 or more")
    return _equal_parts(node, x, step, place)


def _equal_parts(node: Node, x: Tensor, step: int, axis: int) -> list[Any]:
    """Parts of `step` elements along an axis; the last one may have fewer."""
    size = x.shape[axis]
    count = -(-size // step)
    if count > MAX_UNROLLED:
        refuse(node, f"axis {axis} with {size} elements has {count} parts", f"at most {MAX_UNROLLED}")
    return _parts(node, x, [min(step, size - start) for start in range(0, size, step)], axis)


def _parts(node: Node, x: Tensor, sizes: list[int], axis: int) -> list[Any]:
    """Parts of these sizes along an axis."""
    if min(sizes, default=0) < 0 or sum(sizes) != x.shape[axis]:
        raise OnnxError("onnx", f"{node.name}: parts of {sizes} of {x.shape[axis]} elements", "their sum")
    if len(sizes) < 2:
        return [x] * len(sizes)
    return list(meta.split(x, list(accumulate(sizes[:-1])), axis))


@row("ConcatFromSequence", raw=True)
def concat_from_sequence(node: Node, input_sequence: Any, *, axis: int, new_axis: int = 0) -> Any:
    items = _items(node, input_sequence)
    if not items:
        raise OnnxError("onnx", f"{node.name}: the sequence is empty", "at least one tensor")
    tensors = [tensor(v) for v in items]
    rank = tensors[0].ndim + bool(new_axis)
    place = axis_of("ConcatFromSequence", axis, rank)
    return meta.stack(tensors, place) if new_axis else meta.concatenate(tensors, place)


@row("SequenceMap", raw=True, folds=False)
def sequence_map(node: Node, input_sequence: Any, *others: Any, body: Any) -> Any:
    items = _items(node, input_sequence)
    for other in others:
        if isinstance(other, list) and len(other) != len(items):
            raise OnnxError("onnx", f"{node.name}: sequences of {len(items)} and {len(other)} values", "one length")
    results = [body(v, *(o[i] if isinstance(o, list) else o for o in others)) for i, v in enumerate(items)]
    return tuple([result[k] for result in results] for k in range(len(body.outputs)))


# --- optional values -------------------------------------------------------------------------------------------------


row("Optional", raw=True, folds=False)(lambda node, input=None, *, type=None: input)
row("OptionalHasElement", raw=True)(lambda node, input=None: np.asarray(input is not None))


@row("OptionalGetElement", raw=True, folds=False)
def optional_get_element(node: Node, input: Any) -> Any:
    if input is None:
        raise OnnxError("onnx", f"{node.name}: the optional is empty", "a value")
    return input


# --- positions -------------------------------------------------------------------------------------------------------


def _items(node: Node, sequence: Any) -> list[Any]:
    if not isinstance(sequence, list):
        raise OnnxError("onnx", f"{node.name}: a tensor is given", "a sequence")
    return sequence


def _position(node: Node, position: Any, last: int, count: int) -> int:
    """A position counted from the front. Raises OnnxError for one that the sequence does not have."""
    place = int(value_of(node, position, "position").reshape(()).item())
    if not -count <= place <= last:
        raise OnnxError("onnx", f"{node.name}: position {place} of {count} values", f"{-count} to {last}")
    return place + count if place < 0 else place
