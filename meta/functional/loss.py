"""Losses of a prediction and a target per element, and of distributions.

Arguments broadcast. `reduction` is "mean", "sum" or "none", for a loss per element; other values raise ArgumentError.
Shapes that do not broadcast, and dtypes that do not fit, raise TypeInferenceError.
"""

from __future__ import annotations

import math
from typing import Literal

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError
from meta.functional._axes import broadcast, equal_shapes
from meta.functional._checks import Reduction, check_reduction, reduced

__all__ = [
    "cosine_embedding_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "margin_ranking_loss",
    "poisson_nll_loss",
    "soft_cross_entropy",
    "soft_margin_loss",
]
AMP = "never"


def huber_loss(x: T, target: T, reduction: Reduction = "mean", delta: float = 1.0) -> T:
    """d**2 / 2 where |d| < delta, else delta * (|d| - delta / 2), with d = x - target (P. Huber, "Robust Estimation of
    a Location Parameter", 1964). Raises ArgumentError unless delta is positive."""
    check_reduction("huber_loss", reduction)
    if not delta > 0:
        raise ArgumentError("huber_loss", f"delta is {delta}", "a positive number", "l1_loss is the limit for delta 0")
    x, target = broadcast("huber_loss", x, target)
    return meta.smooth_l1_loss(x, target, reduction, delta) * delta


def kl_div(
    x: T, target: T, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean", log_target: bool = False
) -> T:
    """The terms target * (log(target) - x) of the divergence of S. Kullback and R. Leibler, 0 where the target is 0.

    x: logarithms of probabilities; target: probabilities, or with `log_target` their logarithms. "mean" divides by the
    number of elements, "batchmean" by the size of the first axis, which gives the divergence of each example."""
    check_reduction("kl_div", reduction, "batchmean")
    if log_target:
        losses = meta.exp(target) * (target - x)
    else:
        is_zero = meta.equal(target, 0)
        losses = target * meta.log(meta.where(is_zero, 1.0, target)) - target * x
    if reduction != "batchmean":
        return reduced(losses, reduction)
    return meta.sum(losses) / x.shape[0] if x.ndim else meta.sum(losses)


def soft_margin_loss(x: T, target: T, reduction: Reduction = "mean") -> T:
    """log(1 + exp(-target * x)), computed without overflow; targets are 1 and -1."""
    check_reduction("soft_margin_loss", reduction)
    return reduced(meta.softplus(-(target * x)), reduction)


def hinge_embedding_loss(x: T, target: T, margin: float = 1.0, reduction: Reduction = "mean") -> T:
    """x where the target is 1, max(0, margin - x) where it is -1; x: distances."""
    check_reduction("hinge_embedding_loss", reduction)
    apart = meta.where(meta.equal(target, 1), 0, meta.clip(margin - x, 0))
    together = meta.where(meta.equal(target, -1), 0, x)
    return reduced(apart + together, reduction)


def margin_ranking_loss(x1: T, x2: T, target: T, margin: float = 0.0, reduction: Reduction = "mean") -> T:
    """max(0, margin - target * (x1 - x2)): x1 has to be greater than x2 by the margin where the target is 1, less where
    it is -1. The three tensors have one rank."""
    check_reduction("margin_ranking_loss", reduction)
    if not x1.ndim == x2.ndim == target.ndim:
        shapes = f"shapes are {tuple(x1.shape)}, {tuple(x2.shape)} and {tuple(target.shape)}"
        raise ArgumentError("margin_ranking_loss", shapes, "equal ranks", "reshape them first")
    return reduced(meta.clip(-target * (x1 - x2) + margin, 0), reduction)


def cosine_embedding_loss(x1: T, x2: T, target: T, margin: float = 0.0, reduction: Reduction = "mean") -> T:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1, with cos the cosine of the angle of two
    vectors. x1, x2: (batch, features) or (features,); target: (batch,) or a scalar. Squared lengths are increased by
    1e-12. Raises ArgumentError for other ranks."""
    name = "cosine_embedding_loss"
    check_reduction(name, reduction)
    if x1.ndim != x2.ndim or x1.ndim not in (1, 2) or target.ndim != x1.ndim - 1:
        shapes = f"'x1' has shape {tuple(x1.shape)}, 'x2' {tuple(x2.shape)}, 'target' {tuple(target.shape)}"
        raise ArgumentError(name, shapes, "x1 and x2 of rank 1 or 2, and a target without their last axis")
    product, square1, square2 = (meta.sum(v, -1) for v in (x1 * x2, x1 * x1, x2 * x2))
    cosine = product / meta.sqrt((square1 + 1e-12) * (square2 + 1e-12))
    together = meta.where(meta.equal(target, 1), 1 - cosine, 0)
    apart = meta.where(meta.equal(target, -1), meta.clip(cosine - margin, 0), 0)
    return reduced(together + apart, reduction)


def gaussian_nll_loss(
    x: T, target: T, var: T, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean"
) -> T:
    """(log(var) + (x - target)**2 / var) / 2: the negative log-likelihood of a normal distribution (D. Nix, A. Weigend,
    "Estimating the Mean and Variance of the Target Probability Distribution", 1994).

    var: a number, a tensor of the shape of x, of that shape with a last axis of size 1, or without it. It counts as at
    least `eps`; its gradient is the gradient of the limited value. full: add log(2 pi) / 2. Raises ArgumentError for
    another shape of var, a negative number, and unless eps is positive."""
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    if not eps > 0:
        raise ArgumentError(name, f"eps is {eps}", "a positive number")
    var = _variance(name, x, var)
    limited = meta.maximum(var, eps)
    var = var + meta.stop_gradient(limited - var)  # the limit has no gradient
    difference = x - target
    losses = 0.5 * (meta.log(var) + difference * difference / var)
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def _variance(name: str, x: T, var: T) -> T:
    """The variance as a tensor that broadcasts to x."""
    if isinstance(var, (int, float)):
        if var < 0:
            raise ArgumentError(name, f"var is {var}", "0 or more")
        return meta.full_like(x, var)
    shape, rows = tuple(var.shape), tuple(x.shape[:-1])
    if equal_shapes(shape, x.shape):
        return var
    if equal_shapes(shape, rows):
        return meta.expand_dims(var, -1)
    if equal_shapes(shape, (*rows, 1)):
        return var
    problem = f"'var' has shape {shape}, 'x' {tuple(x.shape)}"
    raise ArgumentError(name, problem, "the shape of x, with a last axis of size 1, or without it")


def poisson_nll_loss(
    x: T, target: T, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Reduction = "mean"
) -> T:
    """exp(x) - target * x, or without `log_input` x - target * log(x + eps): the negative log-likelihood of counts
    under a Poisson distribution. full: add Stirling's approximation of log(target!) for targets above 1."""
    check_reduction("poisson_nll_loss", reduction)
    losses = meta.exp(x) - target * x if log_input else x - target * meta.log(x + eps)
    if full:
        large = meta.greater(target, 1)
        n = meta.where(large, target, 1)
        stirling = n * meta.log(n) - n + 0.5 * meta.log(n * (2 * math.pi))
        losses = losses + meta.where(large, stirling, 0)
    return reduced(losses, reduction)


def soft_cross_entropy(
    x: T, target: T, weight: T | None = None, reduction: Reduction = "mean", label_smoothing: float = 0.0
) -> T:
    """-sum(weight * target * log_softmax(x)) over the classes, axis 1 (axis 0 of a vector): `cross_entropy` with a
    probability for each class in place of the index of one. target: floating, of the shape of x; weight: (classes,).
    "mean" divides by the number of losses. Raises ArgumentError for another shape of the target and a label_smoothing
    outside of 0 to 1."""
    name = "soft_cross_entropy"
    check_reduction(name, reduction)
    if not equal_shapes(x.shape, target.shape) or not x.ndim:
        problem = f"'x' has shape {tuple(x.shape)}, 'target' {tuple(target.shape)}"
        remedy = "indices of classes: meta.cross_entropy(x, target), with the scores first"
        raise ArgumentError(name, problem, "one shape with an axis of classes", remedy)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(name, f"label_smoothing is {label_smoothing}", "from 0 to 1")
    axis = 1 if x.ndim > 1 else 0
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / x.shape[axis]
    logs = meta.log_softmax(x, axis)
    if weight is not None:
        logs = logs * meta.reshape(weight, (-1, *(1,) * (x.ndim - 1 - axis)))
    return reduced(-meta.sum(logs * target, axis), reduction)
