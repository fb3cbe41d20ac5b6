"""Operators that create tensors."""

from __future__ import annotations

from typing import Any

from meta._generated import functions as F
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.table import converter
from meta.frontend.relay.convert.type_mapping import dtype_of


def _dtype(call: OpCall, default: str = "float32") -> str:
    return dtype_of(call.text("dtype", default) or default, call.place)


def _shape(call: OpCall, given: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape as an attribute, or as a constant tensor."""
    found = call.axes("shape")
    return call.ints(given[0], "shape") if given else (found if found is not None else call.sizes("shape"))


@converter("zeros", "ones", "dyn.zeros", "dyn.ones")
def filled(call: OpCall) -> Any:
    shape = _shape(call, call.tensors(0, 1))
    return (F.zeros if call.name.endswith("zeros") else F.ones)(shape, _dtype(call))


@converter("full", "dyn.full")
def full(call: OpCall) -> Any:
    given = call.tensors(1, 2)
    shape, dtype = _shape(call, given[1:]), _dtype(call, given[0].dtype)
    value = call.maybe_number(given[0])
    return F.broadcast_to(_as(given[0], dtype), shape) if value is None else F.full(shape, value, dtype)


def _as(x: Any, dtype: str) -> Any:
    return x if x.dtype == dtype else F.cast(x, dtype)


@converter("zeros_like", "ones_like")
def filled_like(call: OpCall) -> Any:
    return (F.zeros_like if call.name == "zeros_like" else F.ones_like)(*call.tensors(1))


@converter("full_like")
def full_like(call: OpCall) -> Any:
    x, value = call.tensors(2)
    known = call.maybe_number(value)
    return F.broadcast_to(_as(value, x.dtype), x.shape) if known is None else F.full_like(x, known)


@converter("arange")
def arange(call: OpCall) -> Any:
    """Bounds are constants; the same three values stand in the attributes again."""
    start, stop, step = (call.number(v, "a bound") for v in call.tensors(3))
    for name in ("start", "stop", "step"):
        call.get(name)
    return F.arange(start, stop, step, _dtype(call))


@converter("one_hot", "dyn.one_hot")
def one_hot(call: OpCall) -> Any:
    given = call.tensors(4) if call.name == "dyn.one_hot" else call.tensors(3)
    on, off = (call.maybe_number(v) for v in given[1:3])
    depth = int(call.number(given[3], "depth")) if len(given) == 4 else call.int("depth")
    dtype = _dtype(call)
    axis = call.int("axis", -1)
    if (on, off) == (1, 0):
        return F.one_hot(given[0], depth, dtype, axis)
    hot = F.one_hot(given[0], depth, "bool", axis)
    parts = [
        _as(v, dtype) if n is None else F.full(hot.shape, n, dtype) for v, n in zip(given[1:3], (on, off), strict=True)
    ]
    return F.where(hot, *parts)
