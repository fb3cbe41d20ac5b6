"""Normalisations and their gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import SymDim, product
from meta.op.decomposition import decomposition
from meta.op.grad.norm import broadcast_parameter as broadcast
from meta.op.grad.norm import scaled, split_axes, split_channel, sum_over
from meta.op.grad.support import widen

_Ints = tuple[int, ...]


# --- over axes of each row -------------------------------------------------------------------------------------------


def _normalised(x: Tensor, axes: _Ints, eps: float) -> tuple[Any, Any]:
    """x with mean 0 and variance 1 over axes, and 1 / deviation."""
    invstd = meta.rsqrt(meta.var(x, axes, 0, True) + eps)
    return (x - meta.mean(x, axes, True)) * invstd, invstd


@decomposition("layer_norm")
def layer_norm(x: Tensor, scale: Tensor | None, bias: Tensor | None, axis: _Ints, eps: float) -> Any:
    axes, _ = split_axes(axis, x.ndim)
    y = scaled(_normalised(x, axes, eps)[0], scale, axis)
    return y if bias is None else y + broadcast(bias, x.shape, axes)


@decomposition("rms_norm")
def rms_norm(x: Tensor, scale: Tensor | None, axis: _Ints, eps: float) -> Any:
    return scaled(x * meta.rsqrt(meta.mean(x * x, axis, True) + eps), scale, axis)


@decomposition("layer_norm_dx")
def layer_norm_dx(x: Tensor, scale: Tensor | None, dy: Tensor, axis: _Ints, eps: float) -> Any:
    normalised, invstd = _normalised(x, axis, eps)
    g = scaled(dy, scale, axis)
    return invstd * (g - meta.mean(g, axis, True) - normalised * meta.mean(g * normalised, axis, True))


@decomposition("layer_norm_dwb")
def layer_norm_dwb(x: Tensor, dy: Tensor, axis: _Ints, eps: float) -> tuple[Any, Any]:
    _, others = split_axes(axis, x.ndim)
    return sum_over(dy * _normalised(x, axis, eps)[0], others), sum_over(dy, others)


@decomposition("layer_norm_dxwb", wide=False)
def layer_norm_dxwb(x: Tensor, scale: Tensor | None, dy: Tensor, axis: _Ints, eps: float) -> tuple[Any, ...]:
    return meta.layer_norm_dx(x, scale, dy, axis, eps), *meta.layer_norm_dwb(x, dy, axis, eps)


@decomposition("layer_norm_train", wide=False)
def layer_norm_train(x: Tensor, scale: Tensor | None, bias: Tensor | None, axis: _Ints, eps: float) -> tuple[Any, ...]:
    wide, y = widen(x), meta.layer_norm(x, scale, bias, axis, eps)
    return y, meta.mean(wide, axis, True), meta.rsqrt(meta.var(wide, axis, 0, True) + eps)


@decomposition("layer_norm_train_dxwb")
def layer_norm_train_dxwb(
    dy: Tensor, x: Tensor, scale: Tensor | None, mean: Tensor, invstd: Tensor, axis: _Ints
) -> tuple[Any, ...]:
    _, others = split_axes(axis, x.ndim)
    normalised, g = (x - mean) * invstd, scaled(dy, scale, axis)
    dx = invstd * (g - meta.mean(g, axis, True) - normalised * meta.mean(g * normalised, axis, True))
    return dx, sum_over(dy * normalised, others), sum_over(dy, others)


# --- of channels: x in the dtype of sums, everything after the sums elementwise --------------------------------------


def _by_channel(value: Any, x: Tensor, axis: int) -> Any:
    """One element a channel, in the dtype of sums, broadcast against x."""
    is_last = axis % x.ndim == x.ndim - 1
    return widen(value) if is_last else broadcast(widen(value), x.shape, (axis % x.ndim,))


def _gain(invstd: Tensor, w: Any) -> Any:
    return invstd if w is None else invstd * widen(w)


def _in_dtype(x: Tensor, dtype: str) -> Any:
    return x if x.dtype == dtype else meta.cast(x, dtype)


@decomposition("batch_norm_stats")
def batch_norm_stats(x: Tensor, eps: float, axis: int) -> tuple[Any, ...]:
    _, others = split_channel(axis, x.ndim)
    variance = meta.var(x, others, 0)
    return meta.mean(x, others), variance, meta.rsqrt(variance + eps)


@decomposition("batch_norm_train", wide=False)
def batch_norm_train(
    x: Tensor, running_mean: Tensor, running_var: Tensor, w: Any, b: Any, momentum: float, eps: float, axis: int
) -> tuple[Any, ...] | None:
    """y = (x - mean) * (invstd * w) + b, and the running statistics."""
    count = product(x.shape[a] for a in split_channel(axis, x.ndim)[1])
    if isinstance(count, SymDim):
        return None
    mean, variance, invstd = meta.batch_norm_stats(x, eps, axis)
    y = (widen(x) - _by_channel(mean, x, axis)) * _by_channel(_gain(invstd, w), x, axis)
    y = y if b is None else y + _by_channel(b, x, axis)

    def blended(running: Any, batch: Any, weight: float) -> Any:
        return _in_dtype(widen(running) * (1.0 - momentum) + batch * weight, running.dtype) if count else running

    new_mean = blended(running_mean, mean, momentum)
    new_var = blended(running_var, variance, momentum * (count / (count - 1)))
    return _in_dtype(y, x.dtype), new_mean, new_var, mean, invstd


@decomposition("batch_norm_sums")
def batch_norm_sums(dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, axis: int) -> tuple[Any, Any]:
    _, others = split_channel(axis, x.ndim)
    normalised = (x - _by_channel(mean, x, axis)) * _by_channel(invstd, x, axis)
    return sum_over(dy * normalised, others), sum_over(dy, others)


@decomposition("batch_norm_train_dxwb", wide=False)
def batch_norm_train_dxwb(
    dy: Tensor, x: Tensor, w: Any, mean: Tensor, invstd: Tensor, axis: int
) -> tuple[Any, ...] | None:
    """dx = gain * dy + ((mean - x) * (gain * invstd * dw / n) - gain * db / n), where gain is w * invstd.

    The difference is computed anew, so that the one of the forward pass need not be kept."""
    count = product(x.shape[a] for a in split_channel(axis, x.ndim)[1])
    if isinstance(count, SymDim):
        return None
    by_channel = partial(_by_channel, x=x, axis=axis)
    dw, db = meta.batch_norm_sums(dy, x, mean, invstd, axis)
    mean, invstd = widen(mean), widen(invstd)
    gain = _gain(invstd, w)
    share = gain * (1.0 / max(count, 1))
    slope = share * invstd * dw
    rest = (by_channel(mean) - widen(x)) * by_channel(slope) - by_channel(share * db)
    return _in_dtype(widen(dy) * by_channel(gain) + rest, x.dtype), dw, db


@decomposition("batch_norm_infer")
def batch_norm_infer(
    x: Tensor, running_mean: Tensor, running_var: Tensor, w: Any, b: Any, eps: float, axis: int
) -> Any:
    gain = _gain(meta.rsqrt(widen(running_var) + eps), w)
    y = (x - _by_channel(running_mean, x, axis)) * _by_channel(gain, x, axis)
    return y if b is None else y + _by_channel(b, x, axis)
