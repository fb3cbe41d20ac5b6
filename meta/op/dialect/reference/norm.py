"""NumPy versions of normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference._elementwise import plain, wide

Array = Any
Axes = tuple[int, ...]


def _spread(value: Array, x: Array, axes: Axes) -> Array:
    """A parameter of the shape of `axes` so that it broadcasts against x."""
    return wide(value).reshape([x.shape[a] if a in axes else 1 for a in range(x.ndim)])


def _affine(out: Array, w: Array, b: Array, axes: Axes) -> Array:
    if w is not None:
        out = out * _spread(w, out, axes)
    return out if b is None else out + _spread(b, out, axes)


def _sorted(axis: Axes, ndim: int) -> Axes:
    return tuple(sorted(a % ndim for a in axis))


def _row_statistics(x: Array, axes: Axes, eps: float) -> tuple[Array, Array]:
    """The normalised x and 1 / deviation."""
    mean = np.mean(x, axis=axes, keepdims=True)
    invstd = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=axes, keepdims=True) + eps)
    return (x - mean) * invstd, invstd


def layer_norm(x: Array, scale: Array, bias: Array, axis: Axes, eps: float) -> Array:
    axes = _sorted(axis, x.ndim)
    return _affine(_row_statistics(wide(x), axes, eps)[0], scale, bias, axes)


def layer_norm_dx(x: Array, scale: Array, dy: Array, axis: Axes, eps: float) -> Array:
    axes = _sorted(axis, x.ndim)
    normalised, invstd = _row_statistics(wide(x), axes, eps)
    scaled = _affine(wide(dy), scale, None, axes)
    along_one = np.mean(scaled, axis=axes, keepdims=True)
    along_x = np.mean(scaled * normalised, axis=axes, keepdims=True)
    return invstd * (scaled - along_one - normalised * along_x)


def layer_norm_dwb(x: Array, dy: Array, axis: Axes, eps: float) -> tuple[Array, Array]:
    axes = _sorted(axis, x.ndim)
    rest = tuple(a for a in range(x.ndim) if a not in axes)
    normalised, _ = _row_statistics(wide(x), axes, eps)
    return np.sum(wide(dy) * normalised, axis=rest), np.sum(wide(dy), axis=rest)


def _others(x: Array, axis: int) -> tuple[int, Axes]:
    channel = axis % x.ndim
    return channel, tuple(a for a in range(x.ndim) if a != channel)


def batch_norm_train(
    x: Array, running_mean: Array, running_var: Array, w: Array, b: Array, momentum: float, eps: float, axis: int
) -> tuple[Array, ...]:
    channel, others = _others(x, axis)
    value = wide(x)
    number = x.size // x.shape[channel] if x.shape[channel] else 0
    mean, var = np.mean(value, axis=others), np.var(value, axis=others)
    invstd = 1 / np.sqrt(var + eps)
    normalised = (value - _spread(mean, x, (channel,))) * _spread(invstd, x, (channel,))
    y = _affine(normalised, w, b, (channel,))
    if number == 0:
        return y, running_mean, running_var, mean, invstd
    new_mean = wide(running_mean) * (1 - momentum) + mean * momentum
    new_var = wide(running_var) * (1 - momentum) + var * (momentum * number / (number - 1))
    return y, new_mean, new_var, mean, invstd


def batch_norm_train_dxwb(dy: Array, x: Array, w: Array, mean: Array, invstd: Array, axis: int) -> tuple[Array, ...]:
    channel, others = _others(x, axis)
    value, grad, deviation = wide(x), wide(dy), _spread(invstd, x, (channel,))
    normalised = (value - _spread(mean, x, (channel,))) * deviation
    along_one, along_x = np.sum(grad, axis=others), np.sum(grad * normalised, axis=others)
    number = x.size // max(x.shape[channel], 1)
    rest = (_spread(along_one, x, (channel,)) + normalised * _spread(along_x, x, (channel,))) / number
    return _affine((grad - rest) * deviation, w, None, (channel,)), along_x, along_one


def batch_norm_infer(
    x: Array, running_mean: Array, running_var: Array, w: Array, b: Array, eps: float, axis: int
) -> Array:
    channel = (axis % x.ndim,)
    deviation = np.sqrt(_spread(running_var, x, channel) + eps)
    return _affine((wide(x) - _spread(running_mean, x, channel)) / deviation, w, b, channel)


plain(
    {
        "layer_norm": layer_norm,
        "layer_norm_dx": layer_norm_dx,
        "layer_norm_dwb": layer_norm_dwb,
        "batch_norm_train": batch_norm_train,
        "batch_norm_train_dxwb": batch_norm_train_dxwb,
        "batch_norm_infer": batch_norm_infer,
    }
)
