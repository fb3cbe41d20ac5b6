"""Losses that ask for a margin between classes or distances.

`reduction` is "mean", "sum" or "none", for a loss per example; other values raise ArgumentError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import T
from meta.dtype import is_int
from meta.errors import ArgumentError
from meta.functional._axes import equal_shapes
from meta.functional._checks import Reduction, check_reduction, reduced

__all__ = [
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
AMP = "never"


def multi_margin_loss(
    x: T, target: T, p: int = 1, margin: float = 1.0, weight: T | None = None, reduction: Reduction = "mean"
) -> T:
    """The sum over the other classes i of max(0, margin - x[target] + x[i])**p, divided by the number of classes (K.
    Crammer, Y. Singer, 2001). x: (batch, classes) or (classes,); target: an integer class for each example; weight:
    multiplies the losses of each class, (classes,). Raises ArgumentError for p other than 1 and 2, an empty x, and
    shapes and dtypes that do not fit."""
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    if p not in (1, 2):
        raise ArgumentError(name, f"p is {p}", "1 or 2")
    rows = _rows(name, x)
    count, classes = rows.shape
    single = x.ndim < 2 and target.ndim <= 1 and target.size == 1
    if not is_int(target.dtype) or not (single or equal_shapes(target.shape, (count,))):
        problem = f"target is {target.dtype} of shape {tuple(target.shape)}, 'x' has shape {tuple(x.shape)}"
        raise ArgumentError(name, problem, "an integer class for each example")
    if weight is not None and not equal_shapes(weight.shape, (classes,)):
        raise ArgumentError(name, f"'weight' has shape {tuple(weight.shape)}", f"({classes},), one for each class")
    target = meta.cast(meta.reshape(target, (count,)), "int64")
    own = meta.gather(rows, 1, meta.expand_dims(target, 1))
    excess = meta.relu(margin - own + rows)
    terms = excess if p == 1 else excess * excess
    if weight is not None:
        terms = terms * meta.expand_dims(meta.take(weight, target, 0), 1)
    others = meta.logical_not(meta.one_hot(target, classes, "bool"))
    losses = meta.sum(meta.where(others, terms, 0), 1) / classes
    return reduced(losses if x.ndim > 1 else meta.squeeze(losses, 0), reduction)


def multilabel_margin_loss(x: T, target: T, reduction: Reduction = "mean") -> T:
    """The sum over the labels j and all other classes i of max(0, 1 - x[j] + x[i]), divided by the number
    of classes. x: (batch, classes) or (classes,); target: of that shape, in each row the integer labels, then -1.
    Raises ArgumentError for an empty x, and shapes and dtypes that do not fit."""
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    rows = _rows(name, x)
    if not is_int(target.dtype) or not equal_shapes(target.shape, x.shape):
        problem = f"target is {target.dtype} of shape {tuple(target.shape)}, 'x' has shape {tuple(x.shape)}"
        raise ArgumentError(name, problem, "integer labels, as many as classes", "fill each row with -1")
    classes = rows.shape[1]
    labels = meta.cast(meta.reshape(target, rows.shape), "int64")
    ended = meta.cumsum(meta.cast(meta.less(labels, 0), "int64"), 1)
    is_listed = meta.equal(ended, 0)
    labels = meta.where(is_listed, labels, 0)
    listed = meta.logical_and(meta.one_hot(labels, classes, "bool"), meta.expand_dims(is_listed, 2))
    is_label = meta.any(listed, 1, True)
    own = meta.expand_dims(meta.gather(rows, 1, labels), 2)
    excess = meta.relu(1 - own + meta.expand_dims(rows, 1))
    counted = meta.logical_and(meta.expand_dims(is_listed, 2), meta.logical_not(is_label))
    losses = meta.sum(meta.where(counted, excess, 0), (1, 2)) / classes
    return reduced(losses if x.ndim > 1 else meta.squeeze(losses, 0), reduction)


def _rows(name: str, x: T) -> T:
    """x as (batch, classes)."""
    if x.ndim > 2 or 0 in x.shape[-1:]:
        raise ArgumentError(
            name, f"'x' has shape {tuple(x.shape)}", "(batch, classes) or (classes,), at least one class"
        )
    return x if x.ndim == 2 else meta.reshape(x, (1, -1))


def multilabel_soft_margin_loss(x: T, target: T, weight: T | None = None, reduction: Reduction = "mean") -> T:
    """The mean over the classes, the last axis, of binary_cross_entropy_with_logits; target: 0 or 1 for each class;
    weight: broadcasts to x."""
    check_reduction("multilabel_soft_margin_loss", reduction)
    losses = meta.binary_cross_entropy_with_logits(x, target, weight, reduction="none")
    return reduced(meta.mean(losses, -1), reduction)


def triplet_margin_loss(
    anchor: T, positive: T, negative: T, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: Reduction = "mean",
) -> T:  # fmt: skip
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) with the distance `pairwise_distance(., ., p, eps)`
    (V. Balntas et al., "Learning Local Feature Descriptors with Triplets and Shallow Convolutional Neural Networks",
    2016); see triplet_margin_with_distance_loss."""

    def distance(a: T, b: T) -> T:
        return meta.pairwise_distance(a, b, p, eps)

    return _triplet("triplet_margin_loss", anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: T, positive: T, negative: T, distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0, swap: bool = False, reduction: Reduction = "mean",
) -> T:  # fmt: skip
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) with a distance function, by default the Euclidean
    `pairwise_distance`. swap: take the distance of positive and negative where it is less than the distance of anchor
    and negative. Raises ArgumentError unless the margin is positive and the three tensors have one rank."""
    name = "triplet_margin_with_distance_loss"
    distance = meta.pairwise_distance if distance_function is None else distance_function
    return _triplet(name, anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    name: str, anchor: T, positive: T, negative: T, distance: Callable[[Any, Any], Any], margin: float,
    swap: bool, reduction: str,
) -> T:  # fmt: skip
    check_reduction(name, reduction)
    if not margin > 0:
        raise ArgumentError(name, f"margin is {margin}", "a positive number")
    if not anchor.ndim == positive.ndim == negative.ndim:
        shapes = ", ".join(str(tuple(t.shape)) for t in (anchor, positive, negative))
        raise ArgumentError(name, f"shapes are {shapes}", "equal ranks")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = meta.minimum(far, distance(positive, negative))
    return reduced(meta.clip(near - far + margin, 0), reduction)
