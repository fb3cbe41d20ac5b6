"""Losses in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain
from meta.op.dialect.reference.nn import log_softmax
from meta.op.dialect.reference.unary import softplus
from meta.op.rules import class_axis

Array = Any


def _reduce(losses: Array, reduction: str, divisor: Any) -> Array:
    if reduction == "none":
        return losses
    total = np.sum(losses)
    return np.divide(total, np.asarray(divisor, losses.dtype)) if reduction == "mean" else total


def _element_gradient(dy: Array, count: int, reduction: str) -> Array:
    return widen(dy) / count if reduction == "mean" else widen(dy)


def _smooth_l1(d: Array, beta: float) -> Array:
    return np.where(np.abs(d) < beta, d * d * (0.5 / beta if beta else 0), np.abs(d) - 0.5 * beta)


def _smooth_l1_slope(d: Array, beta: float) -> Array:
    return np.where(np.abs(d) < beta, d / beta if beta else d, np.sign(d))


def _difference_loss(
    name: str, value: Callable[..., Array], slope: Callable[..., Array]
) -> dict[str, Callable[..., Array]]:
    """A loss `value(x - target, *attributes)` and its gradient, by name."""

    def forward(x: Array, target: Array, reduction: str, *attributes: Any) -> Array:
        return _reduce(value(widen(x) - widen(target), *attributes), reduction, x.size)

    def backward(x: Array, target: Array, dy: Array, reduction: str, *attributes: Any) -> Array:
        return slope(widen(x) - widen(target), *attributes) * _element_gradient(dy, x.size, reduction)

    return {name: forward, f"{name}_dx": backward}


def binary_cross_entropy(x: Array, target: Array, weight: Array, reduction: str) -> Array:
    x, target = widen(x), widen(target)
    positive, negative = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
    losses = (target - 1) * negative - target * positive
    return _reduce(losses if weight is None else losses * widen(weight), reduction, x.size)


def _logit_operands(x: Array, target: Array, weight: Array, pos_weight: Array) -> tuple[Array, ...]:
    x, target = widen(x), widen(target)
    positive = 1 if pos_weight is None else 1 + (widen(pos_weight) - 1) * target
    return x, target, positive, 1 if weight is None else widen(weight)


def binary_cross_entropy_with_logits(
    x: Array, target: Array, weight: Array, pos_weight: Array, reduction: str
) -> Array:
    x, target, positive, factor = _logit_operands(x, target, weight, pos_weight)
    return _reduce(((1 - target) * x + positive * softplus(-x, 1.0)) * factor, reduction, x.size)


def binary_cross_entropy_with_logits_dx(
    x: Array, target: Array, dy: Array, weight: Array, pos_weight: Array, reduction: str
) -> Array:
    x, target, positive, factor = _logit_operands(x, target, weight, pos_weight)
    slope = (1 - target - positive / (1 + np.exp(x))) * factor
    return slope * _element_gradient(dy, x.size, reduction)


def _class_amounts(
    shape: tuple[int, ...], target: Array, weight: Array, ignore: int, smoothing: float, dtype: Any
) -> tuple[Array, Array]:
    """The share of each class in each target times the weight of the class (classes last), and the weight of each
    target. Invalid targets give NaN, ignored ones 0."""
    count = shape[class_axis(len(shape))]
    weights = np.ones(count, dtype) if weight is None else widen(weight)
    counted, valid = target != ignore, (target >= 0) & (target < count)
    index = np.where(valid, target, 0).astype(np.int64)
    is_target = np.arange(count) == index[..., None]
    amounts = np.where(is_target, (1 - smoothing) * weights, 0)
    if smoothing:
        amounts = amounts + smoothing / max(count, 1) * weights
    amounts = np.where(valid[..., None], amounts, np.nan)
    target_weight = np.where(valid, weights[index] if count else 0, np.nan)
    return np.where(counted[..., None], amounts, 0).astype(dtype), np.where(counted, target_weight, 0).astype(dtype)


def _move_classes_last(x: Array) -> Array:
    """x with the class axis last."""
    return np.moveaxis(x, class_axis(x.ndim), -1)


def nll_loss(
    x: Array, target: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    x = widen(x)
    amounts, target_weight = _class_amounts(x.shape, target, weight, ignore_index, label_smoothing, x.dtype)
    logs, classes = _move_classes_last(x), np.arange(x.shape[class_axis(x.ndim)])
    # Only what has a share in the target adds to the loss: with label smoothing all classes, even of weight 0.
    has_share = (classes == target[..., None]) | (label_smoothing != 0) | np.isnan(amounts)
    losses = -np.sum(np.where(has_share & (target != ignore_index)[..., None], amounts * logs, 0), axis=-1)
    return _reduce(losses, reduction, np.sum(target_weight))


def nll_loss_dx(
    dy: Array, target: Array, weight: Array, shape: tuple[int, ...], reduction: str, ignore_index: int,
    label_smoothing: float,
) -> Array:  # fmt: skip
    dy = widen(dy)
    amounts, target_weight = _class_amounts(shape, target, weight, ignore_index, label_smoothing, dy.dtype)
    grad = -_scale_rows(amounts, dy, target, target_weight, reduction, ignore_index)
    return np.moveaxis(grad, -1, class_axis(len(shape)))


def _scale_rows(value: Array, dy: Array, target: Array, target_weight: Array, reduction: str, ignore: int) -> Array:
    """`value` times the gradient that reaches each row, 0 where the target is ignored."""
    row = dy[..., None] if reduction == "none" else dy
    out = value * row / np.sum(target_weight) if reduction == "mean" else value * row
    return np.where((target != ignore)[..., None], out, 0)


def cross_entropy(
    x: Array, target: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    logs = log_softmax(x, class_axis(x.ndim))
    return nll_loss(logs, target, weight, reduction, ignore_index, label_smoothing)


def cross_entropy_dx(
    x: Array, target: Array, dy: Array, weight: Array, reduction: str, ignore_index: int, label_smoothing: float
) -> Array:
    axis = class_axis(x.ndim)
    amounts, target_weight = _class_amounts(x.shape, target, weight, ignore_index, label_smoothing, widen(x).dtype)
    shares = np.exp(_move_classes_last(log_softmax(x, axis)))
    difference = shares * np.sum(amounts, axis=-1, keepdims=True) - amounts
    return np.moveaxis(_scale_rows(difference, widen(dy), target, target_weight, reduction, ignore_index), -1, axis)


plain(
    {
        **_difference_loss("mse_loss", lambda d: d * d, lambda d: 2 * d),
        **_difference_loss("l1_loss", np.abs, np.sign),
        **_difference_loss("smooth_l1_loss", _smooth_l1, _smooth_l1_slope),
        "binary_cross_entropy": binary_cross_entropy,
        "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
        "binary_cross_entropy_with_logits_dx": binary_cross_entropy_with_logits_dx,
        "nll_loss": nll_loss,
        "nll_loss_dx": nll_loss_dx,
        "cross_entropy": cross_entropy,
        "cross_entropy_dx": cross_entropy_dx,
    }
)
