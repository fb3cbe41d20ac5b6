"""Losses and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.op.decomposition import decompose, decomposition
from meta.op.grad.support import share_of, widen
from meta.op.rules import class_axis


def _reduced(losses: Tensor, reduction: str) -> Any:
    return losses if reduction == "none" else meta.sum(losses) if reduction == "sum" else meta.mean(losses)


def _share(dy: Tensor, x: Tensor, reduction: str) -> Any:
    """The gradient that reaches each of the losses of the shape of x."""
    return dy * share_of(product(x.shape), dy) if reduction == "mean" else dy


# --- of pairs of numbers ---------------------------------------------------------------------------------------------


def _of_difference(loss: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Tensor, target: Tensor, reduction: str, *beta: float) -> Any:
        return _reduced(loss(x - target, *beta), reduction)

    return composed


def _of_difference_dx(slope: Callable[..., Any]) -> Callable[..., Any]:
    def composed(x: Tensor, target: Tensor, dy: Tensor, reduction: str, *beta: float) -> Any:
        return slope(x - target, *beta) * _share(dy, x, reduction)

    return composed


def _twice(difference: Tensor) -> Any:
    return difference * 2.0


def _smooth(difference: Tensor, beta: float) -> Any:
    size = meta.abs(difference)
    return meta.where(size < beta, difference * difference * (0.5 / beta), size - beta / 2) if beta else size


def _smooth_slope(difference: Tensor, beta: float) -> Any:
    sign = meta.sign(difference)
    return meta.where(meta.abs(difference) >= beta, sign, difference * (1 / beta)) if beta else sign


for _name, _loss, _slope in (
    ("mse_loss", meta.square, _twice), ("l1_loss", meta.abs, meta.sign), ("smooth_l1_loss", _smooth, _smooth_slope),
):  # fmt: skip
    decompose({_name: _of_difference(_loss), f"{_name}_dx": _of_difference_dx(_slope)})


@decomposition("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Any:
    positive = meta.where(meta.logical_and(x >= 0, x < math.exp(-100)), -100.0, meta.log(x))
    negative = meta.where(meta.equal(x, 1), -100.0, meta.log1p(-x))
    losses = (target - 1.0) * negative - target * positive
    return _reduced(losses if weight is None else losses * weight, reduction)


@decomposition("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str
) -> Any:
    losses = (1.0 - target) * x + _positive(meta.softplus(-x), target, pos_weight)
    return _reduced(losses if weight is None else losses * weight, reduction)


@decomposition("binary_cross_entropy_with_logits_dx")
def binary_cross_entropy_with_logits_dx(
    x: Tensor, target: Tensor, dy: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str
) -> Any:
    """With the sigmoids of x and of -x neither tail is a difference."""
    positive = target if pos_weight is None else pos_weight * target
    small, is_negative = meta.exp(-meta.abs(x)), x < 0
    up, down = meta.where(is_negative, small, 1.0), meta.where(is_negative, 1.0, small)
    slope = ((1.0 - target) * up - positive * down) / (small + 1.0)
    return (slope if weight is None else slope * weight) * _share(dy, x, reduction)


def _positive(term: Tensor, target: Tensor, pos_weight: Tensor | None) -> Any:
    """A term times the weight of positive targets."""
    return term if pos_weight is None else term * ((pos_weight - 1.0) * target + 1.0)


# --- of classes ------------------------------------------------------------------------------------------------------


class _Targets:
    """Classes of predictions whose axis of classes is `axis`.

    index: the classes, 0 for those that are none.  counted: which are not ignored.
    weight: of each target: of its class, 0 if it is ignored, NaN if it is no class."""

    def __init__(
        self, target: Tensor, weight: Tensor | None, axis: int, classes: Any, dtype: str, ignored: int
    ) -> None:
        self.axis, self.classes, self.dtype = axis, classes, dtype
        is_class = meta.logical_and(meta.greater_equal(target, 0), meta.less(target, classes))
        self.index = meta.where(is_class, target, 0)
        self.counted = meta.not_equal(target, ignored)
        own = (
            meta.full(target.shape, 1.0, dtype, target.device)
            if weight is None
            else meta.take(weight, self.index, 0, "clip")
        )
        self.weight = meta.where(self.counted, meta.where(is_class, own, math.nan), 0)
        self.by_class: Any = 1.0
        """The weights of classes, broadcast against the predictions; 1 without any."""
        if weight is not None:
            self.by_class = meta.reshape(weight, tuple(classes if i == axis else 1 for i in range(target.ndim + 1)))

    def column(self, x: Tensor) -> Any:
        """A value of each target with an axis of classes."""
        return meta.expand_dims(x, (self.axis,))

    def losses(self, negative: Tensor, logs: Callable[[], Any], reduction: str, smoothing: float) -> Any:
        """From the negative logarithms at the targets, with an axis of size 1, and the logarithms of all classes."""
        losses = meta.squeeze(negative, (self.axis,)) * self.weight
        if smoothing:
            every = meta.mean(logs() * self.by_class, (self.axis,))
            losses = losses * (1 - smoothing) - (self.weight * 0 + every) * smoothing
        losses = meta.where(self.counted, losses, 0)
        return meta.sum(losses) / meta.sum(self.weight) if reduction == "mean" else _reduced(losses, reduction)

    def shares(self, dy: Tensor, reduction: str, smoothing: float) -> tuple[Any, Any]:
        """The gradients that reach the class of each target and, by their weights, all classes: 0 where it is ignored,
        each with an axis of size 1."""

        def reaching(amount: Tensor) -> Any:
            share = amount * dy / meta.sum(self.weight) if reduction == "mean" else amount * dy
            return self.column(meta.where(self.counted, share, 0))

        if not smoothing:
            return reaching(self.weight), None
        every = reaching(self.weight * 0 + 1) * (smoothing / self.classes)
        return reaching(self.weight) * (1 - smoothing), every

    def spread(self, of_target: Tensor, of_all: Tensor | None, shape: tuple[Any, ...], like: Any = None) -> Any:
        """Such gradients by class, in a shape that perhaps has columns behind the classes. like: a tensor of the shape,
        whose parts are compared in parts."""
        numbers = _numbers(shape[self.axis], of_target.device)
        if self.axis != len(shape) - 1:
            numbers = meta.expand_dims(numbers, tuple(range(1, len(shape) - self.axis)))
        numbers = numbers if like is None else meta.broadcast_to_like(numbers, like)
        hits = meta.equal(numbers, meta.cast(self.column(self.index), numbers.dtype))
        at_target = meta.cast(hits, self.dtype) * of_target
        return at_target if of_all is None else at_target + of_all * self.by_class


def _numbers(columns: int, device: Any) -> Any:
    """The number of each column; 32 bits compare faster than 64."""
    return meta.arange(0, columns, 1, "int32" if columns < 1 << 31 else "int64", device)


class Logits:
    """What a loss of classes and its gradient share, one value for each row along the axis of classes: the largest
    logit, and the sum of the powers of the differences from it.

    x: the logits, which may be in half precision.  classes: their number; columns behind them are no logits."""

    def __init__(self, x: Tensor, axis: int, classes: Any = None) -> None:
        self.x, self.axis = x, axis
        self.classes = x.shape[axis] if classes is None else classes
        wide = widen(x)
        if x.shape[axis] != self.classes:  # sums and products, because the branches of `where` would delay loads
            wide = wide + self.by_column(0.0, -math.inf)
        self.dtype: str = wide.dtype
        self.highest = meta.max(wide, (axis,), True) if self.classes != 0 else 0.0
        self.shifted = wide - self.highest
        self.powers = meta.exp(self.shifted)
        self.total = meta.sum(self.powers, (axis,), True)

    def by_column(self, of_class: float, other: float) -> Any:
        """One number for the columns of classes, another one for those behind them, along the last axis."""
        numbers = _numbers(self.x.shape[self.axis], self.x.device)
        return meta.where(meta.less(numbers, self.classes), of_class, other)

    def targets(self, target: Tensor, weight: Tensor | None, ignored: int) -> _Targets:
        return _Targets(target, weight, self.axis, self.classes, self.dtype, ignored)

    def loss(self, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float) -> Any:
        targets = self.targets(target, weight, ignore_index)
        picked = widen(meta.gather(self.x, self.axis, targets.column(targets.index)))
        log = meta.log(self.total)
        return targets.losses(log - (picked - self.highest), lambda: self.shifted - log, reduction, smoothing)

    def gradient(
        self, target: Tensor, dy: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float
    ) -> Any:
        """By column of x, 0 behind the classes."""
        targets = self.targets(target, weight, ignore_index)
        scale, every = targets.shares(dy, reduction, smoothing)
        whole = scale if every is None else scale + every * (self.classes if weight is None else meta.sum(weight))
        gradient = self.powers * (whole / self.total) - targets.spread(scale, every, self.x.shape, self.powers)
        return gradient if self.x.shape[self.axis] == self.classes else gradient * self.by_column(1.0, 0.0)


@decomposition("nll_loss")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    axis = class_axis(x.ndim)
    targets = _Targets(target, weight, axis, x.shape[axis], x.dtype, ignore_index)
    picked = meta.gather(x, axis, targets.column(targets.index))
    return targets.losses(-picked, lambda: x, reduction, smoothing)


@decomposition("nll_loss_dx")
def nll_loss_dx(
    dy: Tensor,
    target: Tensor,
    weight: Tensor | None,
    shape: tuple[Any, ...],
    reduction: str,
    ignore_index: int,
    smoothing: float,
) -> Any:
    axis = class_axis(len(shape))
    if not isinstance(shape[axis], int):
        return None
    targets = _Targets(target, weight, axis, shape[axis], dy.dtype, ignore_index)
    return -targets.spread(*targets.shares(dy, reduction, smoothing), shape)


def sum_of_nll_loss_dx(
    dy: Tensor, target: Tensor, weight: Tensor | None, shape: tuple[Any, ...], reduction: str, ignored: int
) -> Any:
    """The sum of nll_loss_dx over the classes, whose axis stays with size 1, without smoothing: one element of each row
    is not 0 at most."""
    axis = class_axis(len(shape))
    targets = _Targets(target, weight, axis, shape[axis], dy.dtype, ignored)
    return -targets.shares(dy, reduction, 0.0)[0]


@decomposition("cross_entropy")
def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    return Logits(x, class_axis(x.ndim)).loss(target, weight, reduction, ignore_index, smoothing)


@decomposition("cross_entropy_dx")
def cross_entropy_dx(
    x: Tensor, target: Tensor, dy: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float
) -> Any:
    axis = class_axis(x.ndim)
    if not isinstance(x.shape[axis], int):
        return None
    return Logits(x, axis).gradient(target, dy, weight, reduction, ignore_index, smoothing)
