"""Slices, gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import WHOLE, product
from meta.dtype import is_float, is_int
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.folding import fold

# --- slices ----------------------------------------------------------------------------------------------------------


@converter("strided_slice")
def strided_slice(call: OpCall) -> Any:
    begin, end, strides = (call.axes(name) or () for name in ("begin", "end", "strides"))
    return sliced(call, call.argument, begin, end, strides, call.axes("axes"))


def sliced(call: OpCall, x: Tensor, begin: Any, end: Any, strides: Any, axes: tuple[int, ...] | None) -> Any:
    """x[begin:end:strides] along `axes` (the leading axes by default). With slice_mode "size", `end` has sizes, -1 for
    the rest of the axis, and strides are ignored."""
    mode = call.only("slice_mode", "end", "size")
    where = tuple(range(len(begin))) if axes is None else tuple(a % x.ndim for a in axes)
    if len(strides) == 1:
        strides = strides * len(where)
    steps = [*strides, *[1] * (len(where) - len(strides))]
    full: list[tuple[int, int, int]] = [(0, WHOLE, 1)] * x.ndim
    for i, axis in enumerate(where):
        first = begin[i] if i < len(begin) else 0
        last = end[i] if i < len(end) else WHOLE
        if mode == "size":
            size = x.shape[axis]
            start = first + size if first < 0 else first
            full[axis] = (start, size if last < 0 else start + last, 1)
        else:
            full[axis] = (first, *_end(x.shape[axis], last, steps[i]))
    used = max((i + 1 for i, s in enumerate(full) if s != (0, WHOLE, 1)), default=0)
    if not used:
        return x
    return meta.strided_slice(x, *(tuple(s[k] for s in full[:used]) for k in range(3)))


def _end(size: Any, end: int, step: int) -> tuple[int, int]:
    """The end in Python's convention, and the step. In Relay -(size + 1) and less means "before the first element"."""
    if step < 0 and isinstance(size, int) and end < -size:
        return -size - 1, step
    return min(end, WHOLE), step


@converter("strided_set")
def strided_set(call: OpCall) -> Any:
    x, v, begin, end, strides = call.tensors(5)
    return meta.strided_set(x, v, call.ints(begin, "begin"), call.ints(end, "end"), call.ints(strides, "strides"))


@converter("slice_like")
def slice_like(call: OpCall) -> Any:
    """x cut to the sizes of another tensor, along `axes` (all axes by default)."""
    x, like = call.tensors(2)
    axes = call.axes("axes") or tuple(range(like.ndim))
    end = list(x.shape)
    for axis in axes:
        end[axis] = like.shape[axis]
    return x if tuple(end) == x.shape else meta.strided_slice(x, (0,) * x.ndim, tuple(end))


# --- gathers -------------------------------------------------------------------------------------------------------


@converter("take")
def take(call: OpCall) -> Any:
    """Mode "fast" assumes valid indices, for which it equals "clip". batch_dims: leading axes that x and the indices
    share."""
    x, indices = call.tensors(2)
    axis = call.get("axis")
    mode = call.only("mode", "clip", "wrap", "fast")
    batch = call.int("batch_dims")
    mode = "clip" if mode == "fast" else mode
    indices = indices if is_int(indices.dtype) else meta.cast(indices, "int64")
    if not batch:
        return meta.take(x, indices, None if axis is None else int(axis), mode)
    if axis is None:
        call.refuse("batch_dims without an axis", "an axis")
    return _take_batched(x, indices, int(axis) % x.ndim, mode, batch % x.ndim)


def _take_batched(x: Tensor, indices: Tensor, axis: int, mode: str, batch: int) -> Any:
    """`take` from a table of the rows of all batches, by indices plus the first row of their batch."""
    size, lead = x.shape[axis], x.shape[:batch]
    count = int(product(lead))
    order = (*range(batch), axis, *(i for i in range(batch, x.ndim) if i != axis))
    moved = meta.transpose(x, order)
    rest = moved.shape[batch + 1 :]
    table = meta.reshape(moved, (count * size, *rest))
    row = meta.cast(indices, "int64")
    row = meta.mod(row, size) if mode == "wrap" else meta.clip(row, 0, size - 1)
    first_rows = meta.multiply(meta.arange(0, count, 1, "int64"), size)
    start = meta.reshape(first_rows, (*lead, *(1,) * (indices.ndim - batch)))
    elements = meta.take(table, meta.add(row, start), 0, "clip")
    inner = indices.ndim - batch
    before = axis - batch  # axes of x between the batch and the axis; in `elements` they follow the axes of the indices
    first = batch + inner
    back = (*range(batch), *range(first, first + before), *range(batch, first), *range(first + before, elements.ndim))
    return meta.transpose(elements, back) if before else elements


@converter("gather")
def gather(call: OpCall) -> Any:
    x, indices = call.tensors(2)
    return meta.gather(x, call.int("axis"), indices)


def _from_end(indices: Tensor, size: Any) -> Any:
    """Indices, with negative ones counted from the end."""
    return meta.where(meta.less(indices, 0), meta.add(indices, size), indices)


@converter("gather_nd")
def gather_nd(call: OpCall) -> Any:
    x, indices = call.tensors(2)
    call.get("index_rank")  # the number of coordinates, which is in the shape of the indices
    return meta.gather_nd(x, indices, call.int("batch_dims"))


@converter("argwhere")
def argwhere(call: OpCall) -> Any:
    """The number of rows depends on values."""
    (x,) = call.tensors(1)
    return meta.cast(meta.argwhere(x), "int32")


@converter("adv_index")
def adv_index(call: OpCall) -> Any:
    """x indexed by tensors that broadcast together, as in NumPy."""
    x, *indices = call.tuple()
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    spread = [
        meta.broadcast_to(_from_end(meta.cast(i, "int64"), x.shape[axis]), shape) for axis, i in enumerate(indices)
    ]
    return meta.gather_nd(x, meta.stack(spread, 0))


# --- scatters ------------------------------------------------------------------------------------------------------


@converter("scatter", "scatter_add", "scatter_elements")
def scatter(call: OpCall) -> Any:
    x, indices, src = call.tensors(3)
    axis = call.int("axis") % x.ndim
    if call.name == "scatter_elements":
        reduction = call.only("reduction", "update", "add", "mul", "min", "max", "mean")
    else:
        reduction = "add" if call.name == "scatter_add" else "update"
    indices = _from_end(indices, x.shape[axis])
    if reduction == "mean":
        return _scattered_mean(x, axis, indices, src)
    return meta.scatter_elements(x, axis, indices, src, reduction)


def _scattered_mean(x: Tensor, axis: int, indices: Tensor, src: Tensor) -> Any:
    """The mean of each element of x and all values scattered to it."""
    total = meta.scatter_elements(x, axis, indices, src, "add")
    count = meta.scatter_elements(meta.ones_like(x), axis, indices, meta.ones_like(src), "add")
    return meta.divide(total, count) if is_float(x.dtype) else meta.trunc_divide(total, count)


@converter("scatter_nd")
def scatter_nd(call: OpCall) -> Any:
    x, indices, src = call.tensors(3)
    mode = call.only("mode", "update", "add", "mul", "min", "max")
    return meta.scatter_nd(x, indices, src, mode)


@converter("sparse_to_dense", "dyn.sparse_to_dense")
def sparse_to_dense(call: OpCall) -> Any:
    """A tensor of a default value with values scattered to coordinates: (), (n,) or (n, rank)."""
    if call.name == "dyn.sparse_to_dense":
        indices, sizes, values, *rest = call.tensors(3, 4)
        shape = call.ints(sizes, "output_shape")
    else:
        indices, values, *rest = call.tensors(2, 3)
        shape = call.sizes("output_shape")
    default = call.maybe_number(rest[0]) if rest else 0
    rank = len(shape)
    blank = meta.broadcast_to(rest[0], shape) if default is None else meta.full(shape, default, values.dtype)
    if indices.ndim == 2:
        coordinates = meta.transpose(indices, (1, 0))
    else:
        coordinates = meta.reshape(indices, (1, -1)) if rank == 1 else meta.reshape(indices, (rank, 1))
    count = coordinates.shape[1]
    values = meta.broadcast_to(meta.reshape(values, (1,)) if not values.ndim else values, (count,))
    return meta.scatter_nd(blank, coordinates, values, "update")


@converter("unravel_index")
def unravel_index(call: OpCall) -> Any:
    """Coordinates of indices into a flattened tensor."""
    indices, shape = call.tensors(2)
    if fold(shape, call.builder) is None:
        return _unravelled(indices, meta.cast(shape, indices.dtype))
    sizes = call.ints(shape, "shape")
    rows: list[Any] = []
    for i, size in enumerate(sizes):
        stride = int(np.prod(sizes[i + 1 :], dtype="int64"))
        rows.append(meta.mod(meta.floor_divide(indices, stride), size))
    return meta.stack(rows, 0)


def _unravelled(indices: Tensor, shape: Any) -> Any:
    """`unravel_index` for a shape that the program computes."""
    strides = row_major_strides(shape)
    column = (shape.shape[0], *(1,) * indices.ndim)
    return meta.mod(
        meta.floor_divide(meta.expand_dims(indices, 0), meta.reshape(strides, column)), meta.reshape(shape, column)
    )


def row_major_strides(shape: Any) -> Any:
    """The number of elements between neighbours along each axis, for a shape in a tensor."""
    return meta.cast(meta.flip(meta.cumprod(meta.flip(shape, (0,)), 0, True), (0,)), shape.dtype)


@converter("invert_permutation")
def invert_permutation(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    order = meta.arange(0, x.shape[0], 1, x.dtype)
    return meta.scatter_elements(meta.zeros_like(x), 0, x, order, "update")
