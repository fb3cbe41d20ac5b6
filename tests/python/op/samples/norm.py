"""Samples of normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import pulled_back


def spread(value: Any, x: Any, axes: Any) -> Any:
    return value.reshape([d if a in axes else 1 for a, d in enumerate(x.shape)])


def positive(axis: Any, ndim: int) -> list[int]:
    return sorted(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def affine(y: Any, scale: Any, bias: Any, axes: Any) -> Any:
    y = y if scale is None else y * spread(scale, y, axes)
    return y if bias is None else y + spread(bias, y, axes)


def wide(x: Any) -> Any:
    """Halves in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def normalised(x: Any, axes: Any, eps: float) -> Any:
    centred = x - x.mean(axes, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + eps)


def rms(x: Any, axes: Any, eps: float) -> Any:
    return x / torch.sqrt(x.square().mean(axes, keepdim=True) + eps)


def over_rows(normalise: Callable[..., Any]) -> Callable[..., Any]:
    """`normalise(x, axes, eps)` with the parameters and axes of an operator."""

    def run(x: Any, scale: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5) -> Any:
        axes = positive(axis, x.ndim)
        return affine(normalise(wide(x), axes, eps), scale, bias, axes).to(x.dtype)

    return run


layer_norm = over_rows(normalised)


def layer_norm_dx(x: Any, scale: Any, dy: Any, axis: Any = -1, eps: float = 1e-5) -> Any:
    return pulled_back(lambda x: layer_norm(x, scale, None, axis, eps), wide(x), wide(dy)).to(x.dtype)


def layer_norm_dwb(x: Any, dy: Any, axis: Any = -1, eps: float = 1e-5) -> Any:
    axes = positive(axis, x.ndim)
    rest = [a for a in range(x.ndim) if a not in axes]
    scaled = wide(dy) * normalised(wide(x), axes, eps)
    return (scaled.sum(rest), wide(dy).sum(rest)) if rest else (scaled, wide(dy))


def layer_norm_dxwb(x: Any, scale: Any, dy: Any, axis: Any = -1, eps: float = 1e-5) -> Any:
    return layer_norm_dx(x, scale, dy, axis, eps), *layer_norm_dwb(x, dy, axis, eps)


def layer_norm_train(x: Any, scale: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5) -> Any:
    value, axes = wide(x), positive(axis, x.ndim)
    mean = value.mean(axes, keepdim=True)
    invstd = 1 / torch.sqrt((value - mean).square().mean(axes, keepdim=True) + eps)
    return layer_norm(x, scale, bias, axis, eps), mean, invstd


def layer_norm_train_dxwb(dy: Any, x: Any, scale: Any, mean: Any, invstd: Any, axis: Any = -1) -> Any:
    """As a function of independent arguments."""
    axes = positive(axis, x.ndim)
    rest = [a for a in range(x.ndim) if a not in axes]
    g = wide(dy) if scale is None else affine(wide(dy), scale, None, axes)
    normalised = (wide(x) - mean) * invstd
    dx = g - g.mean(axes, keepdim=True) - normalised * (g * normalised).mean(axes, keepdim=True)
    sums = [t.sum(rest) if rest else t for t in (wide(dy) * normalised, wide(dy))]
    return (invstd * dx).to(x.dtype), *sums


def others(x: Any, axis: int) -> list[int]:
    return [a for a in range(x.ndim) if a != axis % x.ndim]


def batch_norm_train(
    x: Any, running_mean: Any, running_var: Any, w: Any = None, b: Any = None, momentum: float = 0.1, eps: float = 1e-5,
    axis: int = 1,
) -> Any:  # fmt: skip
    value, rest, channel = wide(x), others(x, axis), [axis % x.ndim]
    mean = value.mean(rest)
    var = ((value - spread(mean, x, channel)) ** 2).mean(rest)
    invstd = 1 / torch.sqrt(var + eps)
    y = affine((value - spread(mean, x, channel)) * spread(invstd, x, channel), w, b, channel).to(x.dtype)
    number = x.numel() // max(x.shape[axis], 1)
    if number == 0:
        return y, running_mean, running_var, mean, invstd
    new_mean = (1 - momentum) * running_mean + momentum * mean
    new_var = (1 - momentum) * running_var + momentum * var * (number / (number - 1))
    return y, new_mean.detach().to(running_mean.dtype), new_var.detach().to(running_var.dtype), mean, invstd


def batch_norm_train_dxwb(dy: Any, x: Any, w: Any, mean: Any, invstd: Any, axis: int = 1) -> Any:
    """As the partial derivatives of a function of independent arguments."""
    value, grad, rest, channel = wide(x), wide(dy), others(x, axis), [axis % x.ndim]
    number = x.numel() // max(x.shape[axis], 1)
    normal = (value - spread(mean, x, channel)) * spread(invstd, x, channel)
    dw, db = (grad * normal).sum(rest), grad.sum(rest)
    dx = (grad - (spread(db, x, channel) + normal * spread(dw, x, channel)) / number) * spread(invstd, x, channel)
    return affine(dx, w, None, channel).to(x.dtype), dw, db


def batch_norm_stats(x: Any, eps: float = 1e-5, axis: int = 1) -> Any:
    channels = x.shape[axis]
    zeros, ones = (fill(channels, dtype=wide(x).dtype) for fill in (torch.zeros, torch.ones))
    mean, invstd = batch_norm_train(x, zeros, ones, eps=eps, axis=axis)[3:]
    variance = ((wide(x) - spread(mean, x, [axis % x.ndim])) ** 2).mean(others(x, axis))
    return mean, variance, invstd


def batch_norm_sums(dy: Any, x: Any, mean: Any, invstd: Any, axis: int = 1) -> Any:
    return batch_norm_train_dxwb(dy, x, None, mean, invstd, axis)[1:]


def batch_norm_infer(
    x: Any, running_mean: Any, running_var: Any, w: Any = None, b: Any = None, eps: float = 1e-5, axis: int = 1
) -> Any:
    channel = [axis % x.ndim]
    deviation = torch.sqrt(spread(running_var, x, channel) + eps)
    return affine((wide(x) - spread(running_mean, x, channel)) / deviation, w, b, channel).to(x.dtype)


C, VAR = T(3), T(3, low=0.5, high=2)
X = T(4, 3, 5, 2)
SAMPLES = [
    Sample("layer_norm", T(3, 4, 5), T(5), T(5), ref=layer_norm),
    Sample("layer_norm", T(3, 4, 5), T(4, 5), T(4, 5), axis=(-2, -1), ref=layer_norm),
    Sample("layer_norm", T(3, 4, 5), T(4), axis=1, eps=1e-3, ref=layer_norm),
    Sample("layer_norm", T(3, 4, 5), bias=T(3), axis=0, ref=layer_norm),
    Sample("layer_norm", T(2, 130), T(130), T(130), ref=layer_norm),
    Sample("layer_norm", T(7), ref=layer_norm),
    Sample("rms_norm", T(3, 4, 5), T(5), ref=lambda x, w: F.rms_norm(x, w.shape, w, 1e-5)),
    Sample("rms_norm", T(3, 4, 5), T(3, 5), axis=(0, -1), eps=1e-3, ref=over_rows(rms)),
    Sample("rms_norm", T(2, 130), ref=over_rows(rms)),
    Sample("layer_norm_dx", T(3, 4, 5), T(5), T(3, 4, 5), ref=layer_norm_dx),
    Sample("layer_norm_dx", T(3, 4, 5), T(4, 5), T(3, 4, 5), axis=(1, 2), ref=layer_norm_dx),
    Sample("layer_norm_dx", T(3, 4, 5), None, T(3, 4, 5), axis=1, ref=layer_norm_dx),
    Sample("layer_norm_dwb", T(3, 4, 5), T(3, 4, 5), ref=layer_norm_dwb),
    Sample("layer_norm_dwb", T(3, 4, 5), T(3, 4, 5), axis=(0, 2), ref=layer_norm_dwb),
    Sample("layer_norm_dwb", T(5), T(5), ref=layer_norm_dwb),
    Sample("layer_norm_dxwb", T(3, 4, 5), T(5), T(3, 4, 5), ref=layer_norm_dxwb),
    Sample("layer_norm_dxwb", T(3, 4, 5), None, T(3, 4, 5), axis=(0, 2), eps=1e-3, ref=layer_norm_dxwb),
    Sample("layer_norm_train", T(3, 4, 5), T(5), T(5), ref=layer_norm_train),
    Sample("layer_norm_train", T(3, 4, 5), bias=T(4, 5), axis=(-2, -1), eps=1e-3, ref=layer_norm_train),
    Sample("layer_norm_train", T(7), ref=layer_norm_train),
    Sample(
        "layer_norm_train_dxwb",
        T(3, 4, 5),
        T(3, 4, 5),
        T(5),
        T(3, 4, 1),
        T(3, 4, 1, low=0.5, high=2),
        ref=layer_norm_train_dxwb,
    ),
    Sample(
        "layer_norm_train_dxwb",
        T(3, 4, 5),
        T(3, 4, 5),
        None,
        T(1, 4, 1),
        T(1, 4, 1, low=0.5, high=2),
        axis=(0, 2),
        ref=layer_norm_train_dxwb,
    ),
    Sample("batch_norm_train", X, C, VAR, C, C, ref=batch_norm_train),
    Sample("batch_norm_train", X, C, VAR, momentum=0.3, eps=1e-3, ref=batch_norm_train),
    Sample("batch_norm_train", T(6, 3), C, VAR, C, ref=batch_norm_train),
    Sample("batch_norm_train", T(4, 5, 2, 3), C, VAR, C, C, axis=-1, ref=batch_norm_train),
    Sample("batch_norm_train_dxwb", X, X, C, C, VAR, ref=batch_norm_train_dxwb),
    Sample("batch_norm_train_dxwb", T(4, 5, 3), T(4, 5, 3), None, C, VAR, axis=2, ref=batch_norm_train_dxwb),
    Sample("batch_norm_stats", X, ref=batch_norm_stats),
    Sample("batch_norm_stats", T(4, 5, 2, 3), eps=1e-3, axis=-1, ref=batch_norm_stats),
    Sample("batch_norm_sums", X, X, C, VAR, ref=batch_norm_sums),
    Sample("batch_norm_sums", T(4, 5, 3), T(4, 5, 3), C, VAR, axis=2, ref=batch_norm_sums),
    Sample("batch_norm_infer", X, C, VAR, C, C, ref=batch_norm_infer),
    Sample("batch_norm_infer", T(4, 5, 3), C, VAR, b=C, axis=-1, eps=1e-3, ref=batch_norm_infer),
    Sample("batch_norm_infer", T(1, 3), C, VAR, ref=batch_norm_infer),
]
ERRORS = [
    ErrorCase("layer_norm", T(3, 4), T(3), error=TypeInferenceError, match="'scale' has shape (3,)"),
    ErrorCase("layer_norm", T(3, 4), None, T(4, dtype="int64"), error=TypeInferenceError, match="'bias' is int64"),
    ErrorCase("layer_norm", T(3, 4), axis=2, error=TypeInferenceError, match="axis 2 is out of range"),
    ErrorCase("layer_norm", T(3, 4), axis=(0, 0), error=TypeInferenceError, match="names an axis twice"),
    ErrorCase("layer_norm", T(), error=TypeInferenceError, match="'x' has rank 0"),
    ErrorCase(
        "layer_norm_dx", T(3, 4), None, T(3, 5), error=TypeInferenceError, match="'x' has shape (3, 4), 'dy' has (3, 5)"
    ),
    ErrorCase("layer_norm_dxwb", T(3, 4), T(3), T(3, 4), error=TypeInferenceError, match="'scale' has shape (3,)"),
    ErrorCase("layer_norm_train", T(3, 4), T(3), error=TypeInferenceError, match="'scale' has shape (3,)"),
    ErrorCase(
        "layer_norm_train_dxwb",
        T(3, 4),
        T(3, 4),
        None,
        T(3),
        T(3, 1),
        error=TypeInferenceError,
        match="'mean' has shape (3,)",
    ),
    ErrorCase("batch_norm_train", T(1, 3, 1, 1), C, VAR, error=TypeInferenceError, match="one element a channel"),
    ErrorCase("batch_norm_train", T(4, 3), T(4), VAR, error=TypeInferenceError, match="'running_mean' has shape (4,)"),
    ErrorCase("batch_norm_train", T(3), C, VAR, error=TypeInferenceError, match="'x' has shape (3,)"),
    ErrorCase(
        "batch_norm_train",
        T(4, 3),
        C,
        T(3, dtype="float64"),
        error=TypeInferenceError,
        match="'running_var' is float64",
    ),
    ErrorCase("batch_norm_stats", T(3), error=TypeInferenceError, match="'x' has shape (3,)"),
    ErrorCase("batch_norm_sums", T(4, 3), T(4, 2), T(2), T(2), error=TypeInferenceError, match="'dy' has shape (4, 3)"),
    ErrorCase(
        "batch_norm_infer", T(4, 3, dtype="int64"), C, VAR, error=TypeInferenceError, match="'x' has dtype int64"
    ),
]
