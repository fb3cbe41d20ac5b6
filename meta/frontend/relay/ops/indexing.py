"""Operators that pick elements by position, and put them there."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta._generated import functions as F
from meta.dim import product
from meta.dtype import is_float, is_int
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.folding import fold
from meta.frontend.relay.convert.table import converter
from meta.op.declare.indexing import WHOLE

# --- slices ----------------------------------------------------------------------------------------------------------


@converter("strided_slice")
def strided_slice(call: OpCall) -> Any:
    given = call.tensors(1, 4)
    x = given[0]
    named = ("begin", "end", "strides")
    begin, end, strides = (call.axes(name) or () for name in named)
    if len(given) > 1:
        begin, end, strides = (call.ints(v, n) for v, n in zip(given[1:], named, strict=True))
    return sliced(call, x, begin, end, strides, call.axes("axes"))


@converter("dyn.strided_slice")
def dyn_strided_slice(call: OpCall) -> Any:
    x, begin, end, strides = call.tensors(4)
    for name in ("begin", "end", "strides"):
        call.get(name)
    return sliced(call, x, call.ints(begin, "begin"), call.ints(end, "end"), call.ints(strides, "strides"),
                  call.axes("axes"))  # fmt: skip


def sliced(call: OpCall, x: Any, begin: Any, end: Any, strides: Any, axes: tuple[int, ...] | None) -> Any:
    """x[begin:end:strides] along `axes` (the first ones when None); with slice_mode "size" `end` has sizes, -1 for all
    that is left, and strides do not count."""
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
    return F.strided_slice(x, *(tuple(s[k] for s in full[:used]) for k in range(3)))


def _end(size: Any, end: int, step: int) -> tuple[int, int]:
    """The end for Python's rules, and the step. Relay takes -(size + 1) and less for "before the first element", as
    Python does, and ends past every size for all."""
    if step < 0 and isinstance(size, int) and end < -size:
        return -size - 1, step
    return min(end, WHOLE), step


@converter("strided_set")
def strided_set(call: OpCall) -> Any:
    x, v, begin, end, strides = call.tensors(5)
    return F.strided_set(x, v, call.ints(begin, "begin"), call.ints(end, "end"), call.ints(strides, "strides"))


@converter("slice_like")
def slice_like(call: OpCall) -> Any:
    """x cut to the sizes of another tensor, along `axes` (all when there are none)."""
    x, like = call.tensors(2)
    axes = call.axes("axes") or tuple(range(like.ndim))
    end = list(x.shape)
    for axis in axes:
        end[axis] = like.shape[axis]
    return x if tuple(end) == x.shape else F.strided_slice(x, (0,) * x.ndim, tuple(end))


# --- taking ----------------------------------------------------------------------------------------------------------


@converter("take")
def take(call: OpCall) -> Any:
    """Mode "fast" promises positions inside, which "clip" leaves alone. batch_dims: leading axes that x and the
    positions share."""
    x, indices = call.tensors(2)
    axis = call.get("axis")
    mode = call.only("mode", "clip", "wrap", "fast")
    batch = call.int("batch_dims")
    mode = "clip" if mode == "fast" else mode
    indices = indices if is_int(indices.dtype) else F.cast(indices, "int64")
    if not batch:
        return F.take(x, indices, None if axis is None else int(axis), mode)
    if axis is None:
        call.refuse("batch_dims without an axis", "an axis")
    return _take_batched(x, indices, int(axis) % x.ndim, mode, batch % x.ndim)


def _take_batched(x: Any, indices: Any, axis: int, mode: str, batch: int) -> Any:
    """Batches become rows of one table, along which positions are moved: positions are made absolute."""
    size, lead = x.shape[axis], x.shape[:batch]
    count = int(product(lead))
    order = (*range(batch), axis, *(i for i in range(batch, x.ndim) if i != axis))
    moved = F.transpose(x, order)
    rest = moved.shape[batch + 1 :]
    table = F.reshape(moved, (count * size, *rest))
    at = F.cast(indices, "int64")
    at = F.mod(at, size) if mode == "wrap" else F.clip(at, 0, size - 1)
    first_rows = F.multiply(F.arange(0, count, 1, "int64"), size)
    start = F.reshape(first_rows, (*lead, *(1,) * (indices.ndim - batch)))
    found = F.take(table, F.add(at, start), 0, "clip")
    inner = indices.ndim - batch
    before = axis - batch  # axes of x between the batch and the axis, which stand behind the positions now
    first = batch + inner
    back = (*range(batch), *range(first, first + before), *range(batch, first), *range(first + before, found.ndim))
    return F.transpose(found, back) if before else found


@converter("gather")
def gather(call: OpCall) -> Any:
    x, indices = call.tensors(2)
    return F.gather(x, call.int("axis"), indices)


def _from_end(indices: Any, size: Any) -> Any:
    """Positions, negative ones counted from the end."""
    return F.where(F.less(indices, 0), F.add(indices, size), indices)


@converter("gather_nd")
def gather_nd(call: OpCall) -> Any:
    x, indices = call.tensors(2)
    call.get("index_rank")  # the number of coordinates, which the shape of the indices says
    return F.gather_nd(x, indices, call.int("batch_dims"))


@converter("argwhere")
def argwhere(call: OpCall) -> Any:
    """The number of rows depends on values, and is found out when the program runs."""
    (x,) = call.tensors(1)
    return F.cast(F.argwhere(x), "int32")


@converter("adv_index")
def adv_index(call: OpCall) -> Any:
    """x at tensors of positions that broadcast together, as NumPy does with several of them."""
    x, *indices = call.tuple()
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    spread = [F.broadcast_to(_from_end(F.cast(i, "int64"), x.shape[axis]), shape) for axis, i in enumerate(indices)]
    return F.gather_nd(x, F.stack(spread, 0))


# --- putting ---------------------------------------------------------------------------------------------------------


@converter("scatter", "scatter_add", "scatter_elements")
def scatter(call: OpCall) -> Any:
    x, indices, src = call.tensors(3)
    axis = call.int("axis") % x.ndim
    if call.name == "scatter_elements":
        reduction = call.only("reduction", "update", "add", "mul", "min", "max", "mean")
    else:
        reduction = "add" if call.name == "scatter_add" else "update"
    places = _from_end(indices, x.shape[axis])
    if reduction == "mean":
        return _scattered_mean(x, axis, places, src)
    return F.scatter_elements(x, axis, places, src, reduction)


def _scattered_mean(x: Any, axis: int, places: Any, src: Any) -> Any:
    """The mean of what was at each place and all that is put there."""
    total = F.scatter_elements(x, axis, places, src, "add")
    count = F.scatter_elements(F.ones_like(x), axis, places, F.ones_like(src), "add")
    return F.divide(total, count) if is_float(x.dtype) else F.trunc_divide(total, count)


@converter("scatter_nd")
def scatter_nd(call: OpCall) -> Any:
    x, indices, src = call.tensors(3)
    mode = call.only("mode", "update", "add", "mul", "min", "max")
    return F.scatter_nd(x, indices, src, mode)


@converter("sparse_to_dense", "dyn.sparse_to_dense")
def sparse_to_dense(call: OpCall) -> Any:
    """A tensor full of a default, with values put at positions: none, one or several of (n,) or (n, rank)."""
    if call.name == "dyn.sparse_to_dense":
        indices, wanted, values, *rest = call.tensors(3, 4)
        shape = call.ints(wanted, "output_shape")
    else:
        indices, values, *rest = call.tensors(2, 3)
        shape = call.sizes("output_shape")
    default = call.maybe_number(rest[0]) if rest else 0
    rank = len(shape)
    blank = F.broadcast_to(rest[0], shape) if default is None else F.full(shape, default, values.dtype)
    if indices.ndim == 2:
        places = F.transpose(indices, (1, 0))
    else:
        places = F.reshape(indices, (1, -1)) if rank == 1 else F.reshape(indices, (rank, 1))
    count = places.shape[1]
    values = F.broadcast_to(F.reshape(values, (1,)) if not values.ndim else values, (count,))
    return F.scatter_nd(blank, places, values, "update")


@converter("unravel_index")
def unravel_index(call: OpCall) -> Any:
    """Coordinates of positions in a flattened tensor."""
    indices, shape = call.tensors(2)
    if fold(shape, call.builder) is None:
        return _unravelled(indices, F.cast(shape, indices.dtype))
    sizes = call.ints(shape, "shape")
    rows: list[Any] = []
    for i, size in enumerate(sizes):
        stride = int(np.prod(sizes[i + 1 :], dtype="int64"))
        rows.append(F.mod(F.floor_divide(indices, stride), size))
    return F.stack(rows, 0)


def _unravelled(indices: Any, shape: Any) -> Any:
    """The same for a shape that only the running program knows."""
    rest = F.cast(F.flip(F.cumprod(F.flip(shape, (0,)), 0, True), (0,)), shape.dtype)
    column = (shape.shape[0], *(1,) * indices.ndim)
    return F.mod(F.floor_divide(F.expand_dims(indices, 0), F.reshape(rest, column)), F.reshape(shape, column))


@converter("invert_permutation")
def invert_permutation(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    order = F.arange(0, x.shape[0], 1, x.dtype)
    return F.scatter_elements(F.zeros_like(x), 0, x, order, "update")
