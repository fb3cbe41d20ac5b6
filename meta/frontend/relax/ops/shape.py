"""Operators that move elements, and shapes as values."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta.dim import SymDim, product
from meta.frontend.relax.ops._table import Shape, row, rows, shape_of, shared, tensor
from meta.frontend.relay.convert.call import OpCall

shared("collapse_sum_like", "meshgrid", "nn.batch_flatten", "repeat", "reverse_sequence", "stack")


@row("split")
def split(call: OpCall) -> Any:
    """Into sections of one size, with a smaller last one where that does not divide; or at positions."""
    x, axis = tensor(call, 0), call.int("axis")
    sections = call.get("indices_or_sections")
    size = x.shape[axis]
    if isinstance(sections, int) and isinstance(size, int) and size % sections:
        step = -(-size // sections)
        sections = tuple(min(step * i, size) for i in range(1, sections))
    return meta.split(x, sections, axis)


def _with_shape(function: Any, call: OpCall) -> Any:
    """`function` of a tensor and the shape of its result; the tensor itself if it has that shape."""
    x, shape = tensor(call, 0), shape_of(call, 1)
    return x if shape == x.shape else function(x, tuple(shape))


rows({
    "broadcast_to": lambda call: _with_shape(meta.broadcast_to, call),
    "collapse_sum_to": lambda call: _with_shape(meta.sum_to, call),
    "flatten": lambda call: meta.reshape(tensor(call, 0), (-1,)),
    "flip": lambda call: meta.flip(tensor(call, 0), (call.int("axis"),)),
    "inspect.tensor_ndim": lambda call: tensor(call, 0).ndim,
    "inspect.tensor_shape_i": lambda call: tensor(call, 0).shape[int(call.args[1])],
    "reshape": lambda call: _with_shape(meta.reshape, call),
    "shape_of": lambda call: Shape(tensor(call, 0).shape),
    "size": lambda call: _size_tensor(call, product(tensor(call, 0).shape)),
    "squeeze": lambda call: meta.squeeze(tensor(call, 0), call.axes()),
    "tensor_to_shape": lambda call: Shape(call.ints(tensor(call, 0), "the shape")),
    "tile": lambda call: meta.tile(tensor(call, 0), call.sizes("repeats")),
})  # fmt: skip


@row("permute_dims")
def permute_dims(call: OpCall) -> Any:
    x, axes = tensor(call, 0), call.axes("axes")
    return meta.transpose(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


@row("expand_dims")
def expand_dims(call: OpCall) -> Any:
    x, axes = tensor(call, 0), call.axes() or ()
    return meta.expand_dims(x, axes) if axes else x


@row("concat")
def concat(call: OpCall) -> Any:
    axis = call.get("axis")
    xs = call.tuple()
    return (
        meta.concatenate(xs, int(axis)) if axis is not None else meta.concatenate([meta.reshape(x, (-1,)) for x in xs])
    )


@row("layout_transform")
def layout_transform(call: OpCall) -> Any:
    """A permutation of the axes; other maps of indices are refused."""
    x, index_map = tensor(call, 0), call.get("index_map")
    call.get("pad_value")
    initial = [hash(v) for v in index_map.initial_indices]
    final = [hash(i) for i in index_map.final_indices]
    if sorted(initial) != sorted(final):
        call.refuse(f"the map of indices {index_map}", "a permutation of the axes")
    return meta.transpose(x, tuple(initial.index(i) for i in final))


@row("shape_to_tensor")
def shape_to_tensor(call: OpCall) -> Any:
    shape = shape_of(call, 0)
    if not any(isinstance(d, SymDim) for d in shape):
        return call.tensor(np.asarray(shape, "int64"), "int64")
    y = meta.stack([_size_tensor(call, d) for d in shape])
    call.shapes[y.atom] = tuple(shape)
    return y


def _size_tensor(call: OpCall, dim: Any) -> Any:
    return meta.full((), dim, "int64") if isinstance(dim, SymDim) else call.tensor(dim, "int64")
