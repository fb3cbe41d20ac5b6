"""Slices, gathers and scatters."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import is_int
from meta.frontend.relax.ops._table import number, row, shared, tensor
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.ops.indexing import sliced
from meta.tracing.symbol import Symbol

shared("scatter_elements")


@row("take")
def take(call: OpCall) -> Any:
    """Mode "fast" assumes valid indices, for which it equals "clip"; "nan" gives NaN for others."""
    x, indices = call.tensors(2)
    axis, mode = call.get("axis"), call.only("mode", "fast", "clip", "wrap", "nan")
    indices = indices if is_int(indices.dtype) else meta.cast(indices, "int64")
    where = None if axis is None else int(axis)
    y = meta.take(x, indices, where, "clip" if mode in ("fast", "nan") else mode)
    if mode != "nan":
        return y
    size = x.shape[0 if where is None else where]
    valid = meta.logical_and(meta.greater_equal(indices, -size), meta.less(indices, size))
    axis = (where or 0) % x.ndim
    shape = (*(1,) * axis, *indices.shape, *(1,) * (x.ndim - axis - 1))
    return meta.where(meta.reshape(valid, shape), y, float("nan"))


def _ints(call: OpCall, index: int, what: str) -> tuple[Any, ...]:
    """Argument `index`, a tuple of sizes, or a constant tensor of them."""
    value: Any = call.args[index]
    return call.ints(value, what) if isinstance(value, Symbol) else tuple(value)


@row("strided_slice")
def strided_slice(call: OpCall) -> Any:
    """assume_inbound: the bounds are within the tensor, which makes no difference then."""
    x = tensor(call, 0)
    call.flag("assume_inbound")
    axes, begin, end = (_ints(call, i, what) for i, what in ((1, "axes"), (2, "begin"), (3, "end")))
    strides = _ints(call, 4, "strides") if len(call.args) > 4 else (1,) * len(axes)
    return sliced(call, x, begin, end, strides, axes)


@row("dynamic_strided_slice")
def dynamic_strided_slice(call: OpCall) -> Any:
    x = tensor(call, 0)
    begin, end, strides = (_ints(call, i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    return sliced(call, x, begin, end, strides, None)


@row("slice_scatter")
def slice_scatter(call: OpCall) -> Any:
    x, src = tensor(call, 0), tensor(call, 1)
    axis = call.int("axis") % x.ndim
    start, end, step = (number(call, i, what) for i, what in ((2, "start"), (3, "end"), (4, "step")))
    begin = (*(0,) * axis, start)
    stop = (*x.shape[:axis], end)
    return meta.strided_set(x, src, begin, stop, (*(1,) * axis, step))


@row("gather_elements")
def gather_elements(call: OpCall) -> Any:
    x, indices = call.tensors(2)
    axis = call.int("axis") % x.ndim
    positive = meta.where(meta.less(indices, 0), meta.add(indices, x.shape[axis]), indices)
    return meta.gather(x, axis, positive)


@row("gather_nd")
def gather_nd(call: OpCall) -> Any:
    """The coordinates are along the last axis of the indices; in meta they are along the first."""
    x, indices = call.tensors(2)
    order = (indices.ndim - 1, *range(indices.ndim - 1))
    return meta.gather_nd(x, meta.transpose(indices, order), call.int("batch_dims"))


@row("scatter_nd")
def scatter_nd(call: OpCall) -> Any:
    x, indices, src = call.tensors(3)
    order = (indices.ndim - 1, *range(indices.ndim - 1))
    mode = call.only("reduction", "update", "add", "mul", "min", "max")
    return meta.scatter_nd(x, meta.transpose(indices, order), src, mode)


@row("index_tensor")
def index_tensor(call: OpCall) -> Any:
    """The first axes, indexed by tensors that broadcast together."""
    return tensor(call, 0)[call.tuple(1)]


@row("index_put")
def index_put(call: OpCall) -> Any:
    x, values = tensor(call, 0), tensor(call, 2)
    indices = call.args[1]
    indices = indices if isinstance(indices, tuple) else (indices,)
    return meta.index_put(x, indices, values, call.flag("accumulate"))


@row("nonzero")
def nonzero(call: OpCall) -> Any:
    """The coordinates of the elements that are not 0, one row for each axis. Their number depends on values."""
    return meta.transpose(meta.argwhere(tensor(call, 0)), (1, 0))
