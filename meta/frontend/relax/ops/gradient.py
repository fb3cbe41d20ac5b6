"""Gradients, which Relax's own differentiation writes."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relax.ops._table import row
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.tensor_layout import permuted


def _pool(call: OpCall) -> tuple[Any, Any, str, list[Any]]:
    """The gradient and x in the layout NCHW, the call's layout, and the window."""
    dy, x = call.tensors(2)
    layout = call.only("layout", "NCHW", "NHWC")
    call.get("out_layout")
    names = ("pool_size", "strides", "padding", "dilation")
    window: list[Any] = [call.sizes(name) for name in names]
    return permuted(dy, layout, "NCHW"), permuted(x, layout, "NCHW"), layout, [*window, call.flag("ceil_mode")]


@row("grad.max_pool2d_backward")
def max_pool2d_backward(call: OpCall) -> Any:
    dy, x, layout, window = _pool(call)
    call.flag("count_include_pad")
    _, indices = meta.max_pool2d_with_indices(x, *window)
    return permuted(meta.max_pool2d_dx(dy, indices, x.shape, *window), "NCHW", layout)


@row("grad.avg_pool2d_backward")
def avg_pool2d_backward(call: OpCall) -> Any:
    dy, x, layout, window = _pool(call)
    kernel, stride, padding, dilation, ceil_mode = window
    dx = meta.avg_pool2d_dx(dy, x.shape, kernel, stride, padding, dilation, ceil_mode, call.flag("count_include_pad"))
    return permuted(dx, "NCHW", layout)


@row("grad.nll_loss_backward")
def nll_loss_backward(call: OpCall) -> Any:
    """Minus the weight of the target's class at its place, times the gradient; for the mean over the sum of weights."""
    dy, x, target, *weight = call.tensors(3, 4)
    reduction, ignored = call.only("reduction", "mean", "sum", "none"), call.int("ignore_index", -100)
    if x.ndim < 2:
        call.refuse(f"predictions of shape {x.shape}", "(batch, classes, ...)")
    return meta.nll_loss_dx(dy, meta.cast(target, "int64"), weight[0] if weight else None, x.shape, reduction, ignored)


@row("grad.take_backward")
def take_backward(call: OpCall) -> Any:
    """The gradients added at the positions that were taken."""
    dy, x, indices = call.tensors(3)
    axis = call.get("axis")
    return meta.take_dx(dy, indices, x.shape, 0 if axis is None else int(axis), "clip")
