"""Losses and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta.dim import product
from meta.op.decomposition import decompose, decomposition
from meta.op.grad.support import share_of
from meta.op.rules import class_axis


def _reduced(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else meta.sum(losses) if reduction == "sum" else meta.mean(losses)


def _share(dy: Any, x: Any, reduction: str) -> Any:
    """The gradient that reaches each of the losses of the shape of x."""
    return dy * share_of(product(x.shape), dy) if reduction == "mean" else dy


# --- of pairs of numbers ---------------------------------------------------------------------------------------------


def _of_difference(loss: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Any, target: Any, reduction: str, *beta: float) -> Any:
        return _reduced(loss(x - target, *beta), reduction)

    return composed


def _of_difference_dx(slope: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Any, target: Any, dy: Any, reduction: str, *beta: float) -> Any:
        return slope(x - target, *beta) * _share(dy, x, reduction)

    return composed


def _twice(difference: Any) -> Any:
    return difference * 2.0


def _smooth(difference: Any, beta: float) -> Any:
    size = meta.abs(difference)
    return meta.where(size < beta, difference * difference * (0.5 / beta), size - beta / 2) if beta else size


def _smooth_slope(difference: Any, beta: float) -> Any:
    sign = meta.sign(difference)
    return meta.where(meta.abs(difference) >= beta, sign, difference * (1 / beta)) if beta else sign


for _name, _loss, _slope in (
    ("mse_loss", meta.square, _twice), ("l1_loss", meta.abs, meta.sign), ("smooth_l1_loss", _smooth, _smooth_slope),
):  # fmt: skip
    decompose({_name: _of_difference(_loss), f"{_name}_dx": _of_difference_dx(_slope)})


@decomposition("binary_cross_entropy")
def binary_cross_entropy(x: Any, target: Any, weight: Any, reduction: str) -> Any:
    positive, negative = meta.maximum(meta.log(x), -100.0), meta.maximum(meta.log1p(-x), -100.0)
    losses = (target - 1.0) * negative - target * positive
    return _reduced(losses if weight is None else losses * weight, reduction)


@decomposition("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(x: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    losses = (1.0 - target) * x + _positive(meta.softplus(-x), target, pos_weight)
    return _reduced(losses if weight is None else losses * weight, reduction)


@decomposition("binary_cross_entropy_with_logits_dx")
def binary_cross_entropy_with_logits_dx(
    x: Any, target: Any, dy: Any, weight: Any, pos_weight: Any, reduction: str
) -> Any:
    positive = target if pos_weight is None else pos_weight * target
    slope = (1.0 - target) * meta.sigmoid(x) - positive * meta.sigmoid(-x)
    return (slope if weight is None else slope * weight) * _share(dy, x, reduction)


def _positive(term: Any, target: Any, pos_weight: Any) -> Any:
    """A term times the weight of positive targets."""
    return term if pos_weight is None else term * ((pos_weight - 1.0) * target + 1.0)


# --- of classes ------------------------------------------------------------------------------------------------------


class _Targets:
    """Targets of predictions `x`, whose axis of classes is `axis`, or which have the given shape.

    index: the classes, 0 for those that are none.  counted: which are not ignored.
    weight: of each target: of its class, 0 if it is ignored, NaN if it is no class."""

    def __init__(self, target: Any, weight: Any, shape: tuple[Any, ...], dtype: str, ignored: int) -> None:
        self.axis, self.shape, self.dtype = class_axis(len(shape)), shape, dtype
        self.classes = shape[self.axis]
        is_class = meta.logical_and(meta.greater_equal(target, 0), meta.less(target, self.classes))
        self.index = meta.where(is_class, target, 0)
        self.counted = meta.not_equal(target, ignored)
        self.class_weight = weight
        own = meta.ones_like(target, dtype) if weight is None else meta.take(weight, self.index, 0, "clip")
        self.weight = meta.where(self.counted, meta.where(is_class, own, math.nan), 0)

    def column(self, x: Any) -> Any:
        """A value of each target with an axis of classes."""
        return meta.expand_dims(x, (self.axis,))

    def by_class(self) -> Any:
        """The weights of classes, broadcast against the predictions; 1 without any."""
        if self.class_weight is None:
            return 1.0
        return meta.reshape(self.class_weight, tuple(d if i == self.axis else 1 for i, d in enumerate(self.shape)))

    def amounts(self, smoothing: float) -> Any:
        """The weighted share of each class in each target."""
        hot = meta.one_hot(self.index, self.classes, self.dtype, self.axis) * self.column(self.weight)
        if not smoothing:
            return hot
        valid = self.column(self.weight * 0 + 1)
        return hot * (1 - smoothing) + valid * self.by_class() * (smoothing / self.classes)

    def scaled(self, amounts: Any, dy: Any, reduction: str) -> Any:
        """Amounts of classes times the gradient that reaches each target; 0 where it is ignored."""
        share = dy / meta.sum(self.weight) if reduction == "mean" else self.column(dy) if reduction == "none" else dy
        return meta.where(self.column(self.counted), amounts * share, 0)


@decomposition("nll_loss")
def nll_loss(x: Any, target: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float) -> Any:
    targets = _Targets(target, weight, x.shape, x.dtype, ignore_index)
    picked = meta.squeeze(meta.gather(x, targets.axis, targets.column(targets.index)), (targets.axis,))
    losses = -(picked * targets.weight)
    if smoothing:
        every = meta.mean(x * targets.by_class(), (targets.axis,))
        losses = losses * (1 - smoothing) - (targets.weight * 0 + every) * smoothing
    losses = meta.where(targets.counted, losses, 0)
    if reduction == "mean":
        return meta.sum(losses) / meta.sum(targets.weight)
    return _reduced(losses, reduction)


@decomposition("nll_loss_dx")
def nll_loss_dx(
    dy: Any, target: Any, weight: Any, shape: tuple[Any, ...], reduction: str, ignore_index: int, smoothing: float
) -> Any:
    targets = _Targets(target, weight, shape, dy.dtype, ignore_index)
    return -targets.scaled(targets.amounts(smoothing), dy, reduction) if isinstance(targets.classes, int) else None


@decomposition("cross_entropy")
def cross_entropy(x: Any, target: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float) -> Any:
    logs = meta.log_softmax(x, class_axis(x.ndim))
    return nll_loss(logs, target, weight, reduction, ignore_index, smoothing)


@decomposition("cross_entropy_dx")
def cross_entropy_dx(
    x: Any, target: Any, dy: Any, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    targets = _Targets(target, weight, x.shape, x.dtype, ignore_index)
    if not isinstance(targets.classes, int):
        return None
    amounts = targets.amounts(smoothing)
    total = meta.sum(amounts, (targets.axis,), True) if smoothing else targets.column(targets.weight)
    return targets.scaled(meta.softmax(x, targets.axis) * total - amounts, dy, reduction)
