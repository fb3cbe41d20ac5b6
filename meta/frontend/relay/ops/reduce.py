"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.dim import product
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.type_mapping import dtype_of
from meta.functional._checks import as_dtype


def reduced_axes(call: OpCall, ndim: int) -> tuple[int, ...]:
    """The reduced axes, ascending and not negative."""
    attribute = call.axes()
    exclude = call.flag("exclude")
    is_all = attribute is None or (attribute == () and not exclude)
    axes = range(ndim) if attribute is None or is_all else [a % ndim for a in attribute]
    if exclude and attribute is not None:
        axes = [a for a in range(ndim) if a not in axes]
    return tuple(sorted(set(axes)))


def _reduction(function: Callable[..., Any], result: str = "") -> Callable[[OpCall], Any]:
    def convert(call: OpCall) -> Any:
        (x,) = call.tensors(1)
        axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
        y = function(x, axes, keepdims) if axes else x
        return as_dtype(y, result or x.dtype)

    return convert


for _name, _function, _dtype in (
    ("sum", meta.sum, ""), ("mean", meta.mean, ""), ("prod", meta.prod, ""), ("max", meta.max, ""),
    ("min", meta.min, ""), ("all", meta.all, "bool"), ("any", meta.any, "bool"),
):  # fmt: skip
    converter(_name)(_reduction(_function, _dtype))


@converter("logsumexp")
def logsumexp(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    return meta.logsumexp(x, reduced_axes(call, x.ndim), call.flag("keepdims"))


@converter("variance")
def variance(call: OpCall) -> Any:
    """The mean squared distance from the mean, which is the second argument."""
    x, mean = call.tensors(2)
    axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
    squares = meta.square(meta.subtract(x, mean))
    if not call.flag("unbiased"):
        return meta.mean(squares, axes, keepdims)
    count = int(product(x.shape[a] for a in axes))
    return meta.divide(meta.sum(squares, axes, keepdims), float(max(count - 1, 1)))


@converter("argmax", "argmin")
def arg_reduce(call: OpCall) -> Any:
    """The index of the extreme element in the flattened reduced axes."""
    (x,) = call.tensors(1)
    axes, keepdims = reduced_axes(call, x.ndim), call.flag("keepdims")
    function: Callable[..., Any] = meta.argmax if call.name == "argmax" else meta.argmin
    count, last = product(x.shape[a] for a in axes), call.flag("select_last_index")
    outer_axes = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in outer_axes)
    flat = x
    if len(axes) != 1 or axes[0] != x.ndim - 1:
        flat = meta.transpose(x, (*outer_axes, *axes)) if (*outer_axes, *axes) != tuple(range(x.ndim)) else x
        flat = meta.reshape(flat, (*shape, count))
    if last:
        flat = meta.flip(flat, (-1,))
    index = function(flat, -1)
    if last:
        index = meta.subtract(count - 1, index)
    index = meta.cast(index, "int32")
    if not keepdims:
        return index
    return meta.reshape(index, tuple(1 if a in axes else d for a, d in enumerate(x.shape)))


@converter("cumsum", "cumprod")
def scan(call: OpCall) -> Any:
    """Without an axis, along the flattened tensor."""
    (x,) = call.tensors(1)
    axis, dtype = call.get("axis"), dtype_of(call.text("dtype") or x.dtype, call.place)
    exclusive = call.flag("exclusive")
    if axis is None:
        x, axis = meta.reshape(x, (-1,)), 0
    y = (meta.cumsum if call.name == "cumsum" else meta.cumprod)(as_dtype(x, dtype), int(axis), exclusive)
    return as_dtype(y, dtype)
