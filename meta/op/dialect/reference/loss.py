"""NumPy versions of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meta.op.dialect.reference._elementwise import plain, wide
from meta.op.dialect.reference.nn import log_softmax

Array = Any


def _reduce(losses: Array, reduction: str, divisor: Any) -> Array:
    if reduction == "none":
        return losses
    total = np.sum(losses)
    return np.divide(total, np.asarray(divisor, losses.dtype)) if reduction == "mean" else total


def _incoming(dy: Array, number: int, reduction: str) -> Array:
    return wide(dy) / number if reduction == "mean" else wide(dy)


def _smooth(d: Array, beta: float) -> Array:
    return np.where(np.abs(d) < beta, d * d * (0.5 / beta if beta else 0), np.abs(d) - 0.5 * beta)


def _smooth_slope(d: Array, beta: float) -> Array:
    return np.where(np.abs(d) < beta, d / beta if beta else d, np.sign(d))


def _pairwise(name: str, value: Callable[..., Array], slope: Callable[..., Array]) -> dict[str, Callable[..., Array]]:
    def forward(x: Array, target: Array, reduction: str, *attributes: Any) -> Array:
        return _reduce(value(wide(x) - wide(target), *attributes), reduction, x.size)

    def backward(x: Array, target: Array, dy: Array, reduction: str, *attributes: Any) -> Array:
        return slope(wide(x) - wide(target), *attributes) * _incoming(dy, x.size, reduction)

    return {name: forward, f"{name}_dx": backward}


def _logit_parts(x: Array, target: Array, weight: Array, pos_weight: Array) -> tuple[Array, ...]:
    x, target = wide(x), wide(target)
    positive = 1 if pos_weight is None else 1 + (wide(pos_weight) - 1) * target
    return x, target, positive, 1 if weight is None else wide(weight)


def binary_cross_entropy_with_logits(
    x: Array, target: Array, weight: Array, pos_weight: Array, reduction: str
) -> Array:
    x, target, positive, factor = _logit_parts(x, target, weight, pos_weight)
    softplus = np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(x)))
    return _reduce(((1 - target) * x + positive * softplus) * factor, reduction, x.size)


def binary_cross_entropy_with_logits_dx(
    x: Array, target: Array, dy: Array, weight: Array, pos_weight: Array, reduction: str
) -> Array:
    x, target, positive, factor = _logit_parts(x, target, weight, pos_weight)
    slope = (1 - target - positive / (1 + np.exp(x))) * factor
    return slope * _incoming(dy, x.size, reduction)


def _amounts(
    shape: tuple[int, ...], target: Array, weight: Array, ignore: int, smoothing: float, dtype: Any
) -> tuple[Array, Array]:
    """How much of each class a target stands for, times the weight of the class (classes last), and the weights of the
    targets. NaN for a target that is no class, 0 for one that is ignored."""
    count = shape[0 if len(shape) == 1 else 1]
    weights = np.ones(count, dtype) if weight is None else wide(weight)
    counts, known = target != ignore, (target >= 0) & (target < count)
    index = np.where(known, target, 0).astype(np.int64)
    amounts = (np.arange(count) == index[..., None]) * (1 - smoothing) * weights + smoothing / max(count, 1) * weights
    amounts = np.where(known[..., None], amounts, np.nan)
    own = np.where(known, weights[index] if count else 0, np.nan)
    return np.where(counts[..., None], amounts, 0).astype(dtype), np.where(counts, own, 0).astype(dtype)


def _last(x: Array) -> Array:
    """x with its axis of classes last."""
    return np.moveaxis(x, 0 if x.ndim == 1 else 1, -1)


def nll_loss(
    x: Array, target: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    x = wide(x)
    amounts, own = _amounts(x.shape, target, weight, ignore_index, label_smoothing, x.dtype)
    # A class that a target has nothing of does not count, whatever its log-probability.
    losses = -np.sum(np.where(amounts == 0, 0, amounts * _last(x)), axis=-1)
    return _reduce(losses, reduction, np.sum(own))


def nll_loss_dx(
    dy: Array, target: Array, weight: Array, shape: tuple[int, ...], reduction: str, ignore_index: int,
    label_smoothing: float,
) -> Array:  # fmt: skip
    dy = wide(dy)
    amounts, own = _amounts(shape, target, weight, ignore_index, label_smoothing, dy.dtype)
    grad = -_scaled(amounts, dy, target, own, reduction, ignore_index)
    return np.moveaxis(grad, -1, 0 if len(shape) == 1 else 1)


def _scaled(value: Array, dy: Array, target: Array, own: Array, reduction: str, ignore: int) -> Array:
    """`value` times the gradient that reaches each row, 0 where the target is ignored."""
    row = dy[..., None] if reduction == "none" else dy
    out = value * row / np.sum(own) if reduction == "mean" else value * row
    return np.where((target != ignore)[..., None], out, 0)


def cross_entropy(
    x: Array, target: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    logs = log_softmax(x, 0 if x.ndim == 1 else 1)
    return nll_loss(logs, target, weight, reduction, ignore_index, label_smoothing)


def cross_entropy_dx(
    x: Array, target: Array, dy: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    axis = 0 if x.ndim == 1 else 1
    amounts, own = _amounts(x.shape, target, weight, ignore_index, label_smoothing, wide(x).dtype)
    shares = np.exp(_last(log_softmax(x, axis)))
    pull = shares * np.sum(amounts, axis=-1, keepdims=True) - amounts
    return np.moveaxis(_scaled(pull, wide(dy), target, own, reduction, ignore_index), -1, axis)


plain(
    {
        **_pairwise("mse_loss", lambda d: d * d, lambda d: 2 * d),
        **_pairwise("l1_loss", np.abs, np.sign),
        **_pairwise("smooth_l1_loss", _smooth, _smooth_slope),
        "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
        "binary_cross_entropy_with_logits_dx": binary_cross_entropy_with_logits_dx,
        "nll_loss": nll_loss,
        "nll_loss_dx": nll_loss_dx,
        "cross_entropy": cross_entropy,
        "cross_entropy_dx": cross_entropy_dx,
    }
)
