"""Losses and their gradients. Targets out of range, for which meta gives NaN, read the nearest class here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.dim import SymDim, product
from meta.frontend.onnx.compositions._table import composition
from meta.op.rules import class_axis


def _reduced(losses: Any, reduction: str, count: Any = None) -> Any:
    """count: the divisor of a mean, the number of losses by default."""
    if reduction == "none":
        return losses
    if reduction == "sum" or count is not None:
        total = meta.sum(losses)
        return total if reduction == "sum" else meta.divide(total, count)
    return meta.mean(losses)


def _scaled(dy: Any, like: Any, reduction: str) -> Any:
    """The gradient that reaches each loss; None for the mean over an open number of them."""
    size = product(like.shape)
    if reduction == "mean" and isinstance(size, SymDim):
        return None
    return meta.divide(dy, float(size)) if reduction == "mean" else dy


def _pairwise(loss: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Any, target: Any, reduction: str, *beta: float) -> Any:
        return _reduced(loss(meta.subtract(x, target), *beta), reduction)

    return composed


def _pairwise_dx(slope: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Any, target: Any, dy: Any, reduction: str, *beta: float) -> Any:
        scaled = _scaled(dy, x, reduction)
        return None if scaled is None else meta.multiply(slope(meta.subtract(x, target), *beta), scaled)

    return composed


def _smooth(d: Any, beta: float) -> Any:
    size = meta.abs(d)
    if beta == 0:
        return size
    return meta.where(meta.less(size, beta), meta.multiply(meta.square(d), 0.5 / beta), meta.subtract(size, beta / 2))


def _smooth_slope(d: Any, beta: float) -> Any:
    if beta == 0:
        return meta.sign(d)
    return meta.where(meta.less(meta.abs(d), beta), meta.multiply(d, 1 / beta), meta.sign(d))


composition("mse_loss")(_pairwise(meta.square))
composition("l1_loss")(_pairwise(meta.abs))
composition("smooth_l1_loss")(_pairwise(_smooth))
composition("mse_loss_dx")(_pairwise_dx(lambda d: meta.multiply(d, 2.0)))
composition("l1_loss_dx")(_pairwise_dx(meta.sign))
composition("smooth_l1_loss_dx")(_pairwise_dx(_smooth_slope))


@composition("binary_cross_entropy")
def binary_cross_entropy(x: Any, target: Any, weight: Any, reduction: str) -> Any:
    positive = meta.maximum(meta.log(x), -100.0)
    negative = meta.maximum(meta.log(meta.subtract(1.0, x)), -100.0)
    losses = meta.subtract(meta.multiply(meta.subtract(target, 1.0), negative), meta.multiply(target, positive))
    return _reduced(losses if weight is None else meta.multiply(losses, weight), reduction)


@composition("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(x: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    soft = meta.softplus(meta.negative(x))
    if pos_weight is not None:
        soft = meta.multiply(soft, meta.add(meta.multiply(meta.subtract(pos_weight, 1.0), target), 1.0))
    losses = meta.add(meta.multiply(meta.subtract(1.0, target), x), soft)
    return _reduced(losses if weight is None else meta.multiply(losses, weight), reduction)


@composition("binary_cross_entropy_with_logits_dx")
def binary_cross_entropy_with_logits_dx(
    x: Any, target: Any, dy: Any, weight: Any, pos_weight: Any, reduction: str
) -> Any:
    scaled = _scaled(dy, x, reduction)
    if scaled is None:
        return None
    soft = meta.sigmoid(meta.negative(x))
    if pos_weight is not None:
        soft = meta.multiply(soft, meta.add(meta.multiply(meta.subtract(pos_weight, 1.0), target), 1.0))
    slope = meta.subtract(meta.subtract(1.0, target), soft)
    return meta.multiply(slope if weight is None else meta.multiply(slope, weight), scaled)


@composition("nll_loss")
def nll_loss(x: Any, target: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float) -> Any:
    if smoothing:
        return None
    axis = class_axis(x.ndim)
    picked, factor = _picked(x, target, weight, axis, ignore_index)
    losses = meta.negative(meta.multiply(picked, factor))
    return _reduced(losses, reduction, meta.sum(factor) if reduction == "mean" else None)


def _picked(x: Any, target: Any, weight: Any, axis: int, ignored: int) -> tuple[Any, Any]:
    """The values of x at the targets' classes, and the weights of those, 0 for ignored targets."""
    counts = meta.not_equal(target, ignored)
    classes = meta.clip(meta.where(counts, target, meta.zeros_like(target)), 0, x.shape[axis] - 1)
    picked = meta.squeeze(meta.gather(x, axis, meta.expand_dims(classes, (axis,))), (axis,))
    factor = meta.ones_like(picked) if weight is None else meta.take(weight, classes, 0, "clip")
    return picked, meta.where(counts, factor, meta.zeros_like(factor))


@composition("cross_entropy")
def cross_entropy(x: Any, target: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float) -> Any:
    logs = meta.log_softmax(x, class_axis(x.ndim))
    return nll_loss(logs, target, weight, reduction, ignore_index, smoothing)


@composition("cross_entropy_dx")
def cross_entropy_dx(
    x: Any, target: Any, dy: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    axis = class_axis(x.ndim)
    if smoothing or not isinstance(x.shape[axis], int):
        return None
    _, factor = _picked(x, target, weight, axis, ignore_index)
    scale = meta.multiply(factor, meta.divide(dy, meta.sum(factor)) if reduction == "mean" else dy)
    class_index = meta.where(meta.not_equal(target, ignore_index), target, meta.zeros_like(target))
    hot = meta.one_hot(class_index, x.shape[axis], x.dtype, axis)
    return meta.multiply(meta.subtract(meta.softmax(x, axis), hot), meta.expand_dims(scale, (axis,)))
