"""Reductions, scans and sorting."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relax.ops._table import number, row, shared, tensor
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.ops.reduce import reduced_axes
from meta.functional._checks import as_dtype

shared("cumprod", "cumsum", "max", "mean", "min", "prod", "sum")


@row("variance", "std")
def variance(call: OpCall) -> Any:
    """The variance of all elements as the population: divided by their number."""
    x = tensor(call, 0)
    function: Any = meta.var if call.name == "variance" else meta.std
    return function(x, reduced_axes(call, x.ndim), 0, call.flag("keepdims"))


@row("argmax", "argmin")
def arg_reduce(call: OpCall) -> Any:
    """The first position of the extreme element; without an axis that in the flattened tensor, in which keepdims keeps
    all axes."""
    x, axis, keepdims = tensor(call, 0), call.get("axis"), call.flag("keepdims")
    function: Any = meta.argmax if call.name == "argmax" else meta.argmin
    rank = x.ndim
    position = meta.cast(function(meta.reshape(x, (-1,)) if axis is None else x, 0 if axis is None else axis), "int64")
    if not keepdims:
        return position
    return meta.reshape(position, (1,) * rank) if axis is None else meta.expand_dims(position, (axis % rank,))


@row("median")
def median(call: OpCall) -> Any:
    """The lower median; along one axis with its position."""
    x = tensor(call, 0)
    axes, keepdims = call.axes(), call.flag("keepdims")
    if axes is not None and len(axes) != 1:
        call.refuse(f"axis is {axes}", "one axis, or none for all elements")
    call.check_size(*(x.shape if axes is None else (x.shape[axes[0]],)))
    if axes is not None:
        return meta.median(x, axes[0], keepdims)
    value = meta.median(x)
    return meta.reshape(value, (1,) * x.ndim) if keepdims else value


@row("sort", "argsort")
def sort(call: OpCall) -> Any:
    x, axis, descending = tensor(call, 0), call.int("axis", -1), call.flag("descending")
    if call.name == "sort":
        return meta.sort(x, axis, descending)
    return as_dtype(meta.argsort(x, axis, descending), call.text("dtype") or "int32")


@row("topk")
def topk(call: OpCall) -> Any:
    x, axis = tensor(call, 0), call.int("axis", -1)
    k = call.int("k", 1)
    k = k if k >= 1 else x.shape[axis]
    if not isinstance(k, int):
        call.refuse(f"k is the open size {k}", "a number")
    kind = call.only("ret_type", "both", "values", "indices")
    values, indices = meta.topk(x, k, axis, call.flag("largest", True))
    indices = as_dtype(indices, call.text("dtype") or "int32")
    return {"both": (values, indices), "values": values, "indices": indices}[kind]


@row("bucketize")
def bucketize(call: OpCall) -> Any:
    x, boundaries = tensor(call, 0), tensor(call, 1)
    narrow, right = call.flag("out_int32"), call.flag("right")
    if len(call.args) > 2:
        narrow, right = bool(number(call, 2, "out_int32")), bool(number(call, 3, "right"))
    return meta.bucketize(x, boundaries, right, "int32" if narrow else "int64")


@row("multinomial_from_uniform")
def multinomial_from_uniform(call: OpCall) -> Any:
    """For each row of indices the class in whose interval of the cumulated probabilities the uniform number lies."""
    prob, uniform, rows = call.tensors(3)
    dtype = call.text("dtype") or "int64"
    sums = meta.take(meta.cumsum(prob, 1), meta.reshape(meta.cast(rows, "int64"), (-1,)), 0)
    below = meta.less(sums, meta.reshape(uniform, (-1, 1)))
    return as_dtype(meta.sum(meta.cast(below, "int64"), (1,), True), dtype)
