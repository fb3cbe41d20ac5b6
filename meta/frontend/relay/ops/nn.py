"""Normalisations, activations along axes, padding, dropout and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, converter, rows

_MAX_NEIGHBOURS = 255
"""Channels in the window of a local response normalisation."""


rows({
    "nn.fast_softmax": lambda call: meta.softmax(call.argument, call.int("axis", -1)),
    "nn.log_softmax": lambda call: meta.log_softmax(call.argument, call.int("axis", -1)),
    "nn.softmax": lambda call: meta.softmax(call.argument, call.int("axis", -1)),
})  # fmt: skip


@converter("nn.bias_add")
def bias_add(call: OpCall) -> Any:
    x, bias = call.tensors(2)
    return meta.bias_add(x, bias, call.int("axis", 1))


@converter("nn.dropout")
def dropout(call: OpCall) -> Any:
    """The identity, as in Relay, which runs programs for inference. The mask has no value."""
    (x,) = call.tensors(1)
    call.get("rate")
    return (x, NO_MASK)


class _NoMask:
    """The value of the mask of a dropout; every use of it is refused."""

    name = "the mask of nn.dropout, which has no value in inference"


NO_MASK = _NoMask()


@converter("nn.batch_norm")
def batch_norm(call: OpCall) -> Any:
    """Normalises by the moving statistics, which are also the second and third result."""
    x, gamma, beta, mean, var = call.tensors(5)
    scale, center = call.flag("scale", True), call.flag("center", True)
    axis, eps = call.int("axis", 1), call.float("epsilon", 1e-5)
    y = meta.batch_norm_infer(x, mean, var, gamma if scale else None, beta if center else None, eps, axis)
    return (y, mean, var)


@converter("nn.layer_norm")
def layer_norm(call: OpCall) -> Any:
    x, gamma, beta = call.tensors(3)
    scale, center = call.flag("scale", True), call.flag("center", True)
    axis, eps = call.int("axis", -1), call.float("epsilon", 1e-5)
    return meta.layer_norm(x, gamma if scale else None, beta if center else None, (axis,), eps)


def with_parameters(call: OpCall, y: Tensor, parameters: Sequence[Any], axis: int) -> Any:
    """y times gamma plus beta of the channels along an axis, as the attributes `scale` and `center` say."""
    gamma, beta = (meta.reshape(p, tuple(-1 if i == axis else 1 for i in range(y.ndim))) for p in parameters)
    y = y * gamma if call.flag("scale", True) else y
    return y + beta if call.flag("center", True) else y


def grouped(call: OpCall, x: Tensor, parameters: Sequence[Any], axis: int, axes: Sequence[int]) -> Any:
    """x with each group of channels normalised over the channels of the group and further axes."""
    groups = call.int("num_groups")
    split = meta.reshape(x, (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :]))
    over = (axis + 1, *(a + (a > axis) for a in axes if a != axis))
    y = meta.layer_norm(split, None, None, tuple(sorted(over)), call.float("epsilon", 1e-5))
    return with_parameters(call, meta.reshape(y, x.shape), parameters, axis)


@converter("nn.instance_norm")
def instance_norm(call: OpCall) -> Any:
    """Normalises each channel of each batch element by its mean and variance (D. Ulyanov et al., 2016)."""
    x, *parameters = call.tensors(3)
    axis = call.int("axis", 1) % x.ndim
    y = meta.layer_norm(x, None, None, _without(axis, x.ndim), call.float("epsilon", 1e-5))
    return with_parameters(call, y, parameters, axis)


def _without(axis: int, ndim: int) -> tuple[int, ...]:
    """All axes but the batch and one."""
    return tuple(i for i in range(1, ndim) if i != axis)


@converter("nn.group_norm")
def group_norm(call: OpCall) -> Any:
    """Normalises groups of channels by their mean and variance (Y. Wu, K. He, 2018)."""
    x, *parameters = call.tensors(3)
    axis = call.int("axis", 1) % x.ndim
    return grouped(call, x, parameters, axis, _without(axis, x.ndim))


@converter("nn.l2_normalize")
def l2_normalize(call: OpCall) -> Any:
    """x / sqrt(max(sum(x * x), eps))."""
    (x,) = call.tensors(1)
    axes = call.axes() or tuple(range(x.ndim))
    total = meta.sum(meta.square(x), axes, True)
    return meta.divide(x, meta.sqrt(meta.maximum(total, call.float("eps"))))


@converter("nn.lrn")
def lrn(call: OpCall) -> Any:
    """x / (bias + alpha * mean(x * x over `size` neighbouring channels)) ** beta (A. Krizhevsky et al., 2012)."""
    (x,) = call.tensors(1)
    size, axis = call.int("size", 5), call.int("axis", 1) % x.ndim
    if not 0 < size <= _MAX_NEIGHBOURS or size % 2 == 0:
        call.refuse(f"size is {size}", f"an odd number up to {_MAX_NEIGHBOURS}")
    moved = x if axis == 1 else meta.moveaxis(x, axis, 1)
    alpha, beta, bias = call.float("alpha", 1e-4), call.float("beta", 0.75), call.float("bias", 2.0)
    y = meta.local_response_norm(moved, size, alpha, beta, bias)
    return y if axis == 1 else meta.moveaxis(y, 1, axis)


@converter("nn.pad")
def pad(call: OpCall) -> Any:
    x, *fill = call.tensors(1, 2)
    width = tuple(int(v) for pair in call.get("pad_width") for v in pair)
    mode = call.only("pad_mode", "constant", "edge", "reflect")
    if mode != "constant":
        return meta.pad(x, width, mode=mode)
    if any(v < 0 for v in width):
        call.refuse(f"pad_width {call.get('pad_width')}", "widths from 0")
    value = call.maybe_number(fill[0]) if fill else call.float("pad_value", 0.0)
    return _padded_with(x, width, fill[0]) if value is None else meta.pad(x, width, value)


def _padded_with(x: Tensor, width: tuple[int, ...], value: Any) -> Any:
    """Padding with a value that the program computes."""
    inside = meta.pad(meta.ones_like(x, "bool"), width, False)
    return meta.where(inside, meta.pad(x, width, 0), meta.cast(value, x.dtype))


@converter("dyn.nn.pad")
def dyn_pad(call: OpCall) -> Any:
    x, widths, value = call.tensors(3)
    width = call.ints(widths, "pad_width")
    mode = call.only("pad_mode", "constant", "edge", "reflect")
    if mode != "constant":
        return meta.pad(x, width, mode=mode)
    number = call.maybe_number(value)
    return _padded_with(x, width, value) if number is None else meta.pad(x, width, number)


@converter("nn.mirror_pad")
def mirror_pad(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    width = tuple(int(v) for pair in call.get("pad_width") for v in pair)
    return meta.pad(x, width, mode="reflect" if call.only("mode", "SYMMETRIC", "REFLECT") == "REFLECT" else "symmetric")


@converter("nn.dilate")
def dilate(call: OpCall) -> Any:
    """Elements moved apart, with a fill value between them."""
    (x,) = call.tensors(1)
    steps, value = call.sizes("strides"), call.float("dilation_value", 0.0)
    shape = tuple((d - 1) * s + 1 if d else 0 for d, s in zip(x.shape, steps, strict=True))
    if shape == x.shape:
        return x
    blank = meta.full(shape, value, x.dtype)
    return meta.strided_set(blank, x, (0,) * x.ndim, shape, steps)


@converter("nn.cross_entropy")
def cross_entropy(call: OpCall) -> Any:
    """-sum(target * log(p)) / batch."""
    p, target = call.tensors(2)
    return meta.divide(meta.negative(meta.sum(meta.multiply(meta.log(p), target))), float(p.shape[0]))


@converter("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(call: OpCall) -> Any:
    """-sum(target * x) / batch, of logarithms of probabilities."""
    x, target = call.tensors(2)
    return meta.divide(meta.negative(meta.sum(meta.multiply(x, target))), float(x.shape[0]))


@converter("nn.nll_loss")
def nll_loss(call: OpCall) -> Any:
    x, target, weight = call.tensors(3)
    reduction = call.only("reduction", "mean", "sum", "none")
    return meta.nll_loss(x, meta.cast(target, "int64"), weight, reduction, call.int("ignore_index", -100))
