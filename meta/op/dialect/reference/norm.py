"""Normalisations in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.moments import mean, variance
from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain

Array = Any
Axes = tuple[int, ...]


def _broadcast_parameter(value: Array, x: Array, axes: Axes) -> Array:
    """A parameter over `axes`, reshaped to broadcast against x."""
    return widen(value).reshape([x.shape[a] if a in axes else 1 for a in range(x.ndim)])


def _scale_and_shift(out: Array, w: Array, b: Array, axes: Axes) -> Array:
    if w is not None:
        out = out * _broadcast_parameter(w, out, axes)
    return out if b is None else out + _broadcast_parameter(b, out, axes)


def _sort_axes(axis: Axes, ndim: int) -> Axes:
    return tuple(sorted(a % ndim for a in axis))


def _normalise_rows(x: Array, axes: Axes, eps: float) -> tuple[Array, Array]:
    """The normalised x and 1 / deviation."""
    invstd = 1 / np.sqrt(variance(x, axis=axes, keepdims=True) + eps)
    return (x - mean(x, axis=axes, keepdims=True)) * invstd, invstd


def _over_rows(normalise: Callable[[Array, Axes, float], Array]) -> Callable[..., Array]:
    """`normalise(x, axes, eps) * scale + bias`, without the parameters that the operator lacks."""

    def run(x: Array, *rest: Any) -> Array:
        *parameters, axis, eps = rest
        scale, bias = (*parameters, None, None)[:2]
        axes = _sort_axes(axis, x.ndim)
        return _scale_and_shift(normalise(widen(x), axes, eps), scale, bias, axes)

    return run


def layer_norm_dx(x: Array, scale: Array, dy: Array, axis: Axes, eps: float) -> Array:
    axes = _sort_axes(axis, x.ndim)
    normalised, invstd = _normalise_rows(widen(x), axes, eps)
    scaled = _scale_and_shift(widen(dy), scale, None, axes)
    grad_mean = mean(scaled, axis=axes, keepdims=True)
    projection = mean(scaled * normalised, axis=axes, keepdims=True)
    return invstd * (scaled - grad_mean - normalised * projection)


def layer_norm_dwb(x: Array, dy: Array, axis: Axes, eps: float) -> tuple[Array, Array]:
    axes = _sort_axes(axis, x.ndim)
    rest = tuple(a for a in range(x.ndim) if a not in axes)
    normalised, _ = _normalise_rows(widen(x), axes, eps)
    return np.sum(widen(dy) * normalised, axis=rest), np.sum(widen(dy), axis=rest)


def layer_norm_dxwb(x: Array, scale: Array, dy: Array, axis: Axes, eps: float) -> tuple[Array, Array, Array]:
    return layer_norm_dx(x, scale, dy, axis, eps), *layer_norm_dwb(x, dy, axis, eps)


def _split_channel(x: Array, axis: int) -> tuple[int, Axes]:
    """The channel axis and the other axes."""
    channel = axis % x.ndim
    return channel, tuple(a for a in range(x.ndim) if a != channel)


def batch_norm_train(
    x: Array, running_mean: Array, running_var: Array, w: Array, b: Array, momentum: float, eps: float, axis: int
) -> tuple[Array, ...]:
    channel, others = _split_channel(x, axis)
    value = widen(x)
    count = x.size // x.shape[channel] if x.shape[channel] else 0
    average, var = mean(value, axis=others), variance(value, axis=others)
    invstd = 1 / np.sqrt(var + eps)
    normalised = (value - _broadcast_parameter(average, x, (channel,))) * _broadcast_parameter(invstd, x, (channel,))
    y = _scale_and_shift(normalised, w, b, (channel,))
    if count == 0:
        return y, running_mean, running_var, average, invstd
    new_mean = widen(running_mean) * (1 - momentum) + average * momentum
    new_var = widen(running_var) * (1 - momentum) + var * (momentum * count / (count - 1))
    return y, new_mean, new_var, average, invstd


def batch_norm_train_dxwb(dy: Array, x: Array, w: Array, mean: Array, invstd: Array, axis: int) -> tuple[Array, ...]:
    channel, others = _split_channel(x, axis)
    value, grad, scale = widen(x), widen(dy), _broadcast_parameter(invstd, x, (channel,))
    normalised = (value - _broadcast_parameter(mean, x, (channel,))) * scale
    grad_sum, projection = np.sum(grad, axis=others), np.sum(grad * normalised, axis=others)
    count = x.size // max(x.shape[channel], 1)
    rest = (
        _broadcast_parameter(grad_sum, x, (channel,)) + normalised * _broadcast_parameter(projection, x, (channel,))
    ) / count
    return _scale_and_shift((grad - rest) * scale, w, None, (channel,)), projection, grad_sum


def batch_norm_stats(x: Array, eps: float, axis: int) -> tuple[Array, Array, Array]:
    _, others = _split_channel(x, axis)
    value = widen(x)
    var = variance(value, axis=others)
    return mean(value, axis=others), var, 1 / np.sqrt(var + eps)


def batch_norm_sums(dy: Array, x: Array, mean: Array, invstd: Array, axis: int) -> tuple[Array, Array]:
    return batch_norm_train_dxwb(dy, x, None, mean, invstd, axis)[1:]


def batch_norm_infer(
    x: Array, running_mean: Array, running_var: Array, w: Array, b: Array, eps: float, axis: int
) -> Array:
    channel = (axis % x.ndim,)
    deviation = np.sqrt(_broadcast_parameter(running_var, x, channel) + eps)
    return _scale_and_shift((widen(x) - _broadcast_parameter(running_mean, x, channel)) / deviation, w, b, channel)


plain(
    {
        "layer_norm": _over_rows(lambda x, axes, eps: _normalise_rows(x, axes, eps)[0]),
        "layer_norm_dx": layer_norm_dx,
        "layer_norm_dwb": layer_norm_dwb,
        "layer_norm_dxwb": layer_norm_dxwb,
        "batch_norm_train": batch_norm_train,
        "batch_norm_train_dxwb": batch_norm_train_dxwb,
        "batch_norm_stats": batch_norm_stats,
        "batch_norm_sums": batch_norm_sums,
        "batch_norm_infer": batch_norm_infer,
        "rms_norm": _over_rows(lambda x, axes, eps: x / np.sqrt(mean(x * x, axis=axes, keepdims=True) + eps)),
    }
)
