"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta._generated import functions as F
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.table import converter
from meta.frontend.relay.convert.type_mapping import dtype_of


def reduced_axes(call: OpCall, ndim: int) -> tuple[int, ...]:
    """The axes that go, not negative, in order."""
    given = call.axes()
    exclude = call.flag("exclude")
    axes = range(ndim) if given is None or (given == () and not exclude) else [a % ndim for a in given]
    if exclude and given is not None:
        axes = [a for a in range(ndim) if a not in axes]
    return tuple(sorted(set(axes)))


def _reduction(make: Callable[..., Any], result: str = "") -> Callable[[OpCall], Any]:
    def convert(call: OpCall) -> Any:
        (x,) = call.tensors(1)
        axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
        out = make(x, axes, keepdims) if axes else x
        return out if out.dtype == (result or x.dtype) else F.cast(out, result or x.dtype)

    return convert


for _name, _make, _dtype in (
    ("sum", F.sum, ""), ("mean", F.mean, ""), ("prod", F.prod, ""), ("max", F.max, ""), ("min", F.min, ""),
    ("all", F.all, "bool"), ("any", F.any, "bool"),
):  # fmt: skip
    converter(_name)(_reduction(_make, _dtype))


@converter("logsumexp")
def logsumexp(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    return F.logsumexp(x, reduced_axes(call, x.ndim), call.flag("keepdims"))


@converter("variance")
def variance(call: OpCall) -> Any:
    """The mean squared distance from a mean that is given."""
    x, mean = call.tensors(2)
    axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
    squares = F.square(F.subtract(x, mean))
    if not call.flag("unbiased"):
        return F.mean(squares, axes, keepdims)
    count = 1
    for axis in axes:
        count *= int(x.shape[axis])
    return F.divide(F.sum(squares, axes, keepdims), float(max(count - 1, 1)))


@converter("argmax", "argmin")
def arg_reduce(call: OpCall) -> Any:
    """The place of the extreme element among those of the axes that go, in their order."""
    (x,) = call.tensors(1)
    axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
    make: Callable[..., Any] = F.argmax if call.name == "argmax" else F.argmin
    last = call.flag("select_last_index")
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    flat = x
    if len(axes) != 1 or axes[0] != x.ndim - 1:
        flat = F.transpose(x, (*kept, *axes)) if (*kept, *axes) != tuple(range(x.ndim)) else x
        flat = F.reshape(flat, (*shape, _count(x, axes)))
    if last:
        flat = F.flip(flat, (-1,))
    found = make(flat, -1)
    if last:
        found = F.subtract(_count(x, axes) - 1, found)
    found = F.cast(found, "int32")
    if not keepdims:
        return found
    return F.reshape(found, tuple(1 if a in axes else d for a, d in enumerate(x.shape)))


def _count(x: Any, axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


@converter("cumsum", "cumprod")
def scan(call: OpCall) -> Any:
    """Without an axis, over all elements in a row."""
    (x,) = call.tensors(1)
    axis, dtype = call.get("axis"), call.text("dtype") or x.dtype
    dtype = dtype_of(dtype, call.place)
    exclusive = call.flag("exclusive")
    if axis is None:
        x, axis = F.reshape(x, (-1,)), 0
    if x.dtype != dtype:
        x = F.cast(x, dtype)
    out = (F.cumsum if call.name == "cumsum" else F.cumprod)(x, int(axis), exclusive)
    return out if out.dtype == dtype else F.cast(out, dtype)
