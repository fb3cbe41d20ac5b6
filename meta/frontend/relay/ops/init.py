"""Operators that create tensors."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relay.convert.call import OpCall, converter, rows
from meta.frontend.relay.convert.type_mapping import dtype_of
from meta.functional._checks import as_dtype


def _dtype(call: OpCall, default: str = "float32") -> str:
    return dtype_of(call.text("dtype", default) or default, call.place)


@converter("zeros", "ones")
def filled(call: OpCall) -> Any:
    call.tensors(0)
    return (meta.zeros if call.name.endswith("zeros") else meta.ones)(call.sizes("shape"), _dtype(call))


@converter("full")
def full(call: OpCall) -> Any:
    (value,) = call.tensors(1)
    shape, dtype = call.sizes("shape"), _dtype(call, value.dtype)
    number = call.maybe_number(value)
    return meta.broadcast_to(as_dtype(value, dtype), shape) if number is None else meta.full(shape, number, dtype)


rows({
    "ones_like": lambda call: meta.ones_like(call.argument),
    "zeros_like": lambda call: meta.zeros_like(call.argument),
})  # fmt: skip


@converter("full_like")
def full_like(call: OpCall) -> Any:
    x, value = call.tensors(2)
    number = call.maybe_number(value)
    return meta.broadcast_to(as_dtype(value, x.dtype), x.shape) if number is None else meta.full_like(x, number)


@converter("arange")
def arange(call: OpCall) -> Any:
    """Bounds are constants; the attributes repeat them."""
    start, stop, step = (call.number(v, "a bound") for v in call.tensors(3))
    for name in ("start", "stop", "step"):
        call.get(name)
    return meta.arange(start, stop, step, _dtype(call))


@converter("one_hot")
def one_hot(call: OpCall) -> Any:
    indices, *values = call.tensors(3)
    on, off = map(call.maybe_number, values)
    depth, dtype = call.int("depth"), _dtype(call)
    axis = call.int("axis", -1)
    if (on, off) == (1, 0):
        return meta.one_hot(indices, depth, dtype, axis)
    hot = meta.one_hot(indices, depth, "bool", axis)
    pairs = zip(values, (on, off), strict=True)
    return meta.where(hot, *(as_dtype(v, dtype) if n is None else meta.full(hot.shape, n, dtype) for v, n in pairs))
