"""Losses and distances: values and gradients compared with torch, programs, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import meta
from meta import vm
from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.arrays import check, to_torch
from tests.python.functional.against_torch import floats
from tests.python.functional.rows import Row, assert_agrees, classes, signs

POSITIVE = floats(3, 4, low=0.1, high=3)
LABELS = np.array([[2, 0, -1, 1], [3, -1, -1, -1], [-1, 1, 2, 3]])
ZEROS = np.array([[0, 0, 0], [0, 1, -2]], np.float32)


def both(name: str, *inputs: Any, constants: int = 0, **options: Any) -> Row:
    """A row of a function with the same name, arguments and options in both libraries."""
    ours, theirs = getattr(meta, name), getattr(tf, name)
    return Row(lambda *xs: ours(*xs, **options), lambda *xs: theirs(*xs, **options), inputs, constants)


def soft_cross_entropy(**options: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def ours(x: Any, target: Any, weight: Any) -> Any:
        return meta.soft_cross_entropy(x, target, weight, **options)

    return ours, lambda x, target, weight: tf.cross_entropy(x, target, weight, **options)


ROWS: dict[str, Row] = {
    "binary_cross_entropy at 0 and 1": both(
        "binary_cross_entropy",
        np.array([0, 0, 1, 1, 0.5], np.float32),
        np.array([0, 1, 0, 0.5, 1], np.float32),
        constants=1,
    ),
    "huber": both("huber_loss", floats(3, 4), floats(3, 4)[::-1].copy(), delta=0.3),
    "kl_div": both("kl_div", floats(3, 4), np.maximum(floats(3, 4), 0), constants=1, reduction="batchmean"),
    "kl_div logarithms": both("kl_div", floats(3, 4), floats(4), log_target=True, reduction="none"),
    "soft_margin": both("soft_margin_loss", floats(3, 4) * 100, signs(3, 4), constants=1, reduction="sum"),
    "hinge_embedding": both("hinge_embedding_loss", floats(3, 4), signs(3, 4), constants=1, margin=0.5),
    "margin_ranking": both("margin_ranking_loss", floats(5), floats(5) * 0.3, signs(5), constants=1, margin=0.2),
    "cosine_embedding": both(
        "cosine_embedding_loss", floats(4, 3), floats(4, 3)[::-1].copy(), signs(4), constants=1, margin=0.1
    ),
    "gaussian_nll": both("gaussian_nll_loss", floats(3, 4), floats(3, 1), POSITIVE, full=True, reduction="none"),
    "gaussian_nll limited": both("gaussian_nll_loss", floats(3, 4), floats(3, 4), POSITIVE[:, 0], eps=1.0),
    "poisson_nll": both("poisson_nll_loss", floats(3, 4), POSITIVE, full=True),
    "poisson_nll rates": both("poisson_nll_loss", POSITIVE, POSITIVE + 1, log_input=False, reduction="none"),
    "soft_cross_entropy": Row(
        *soft_cross_entropy(label_smoothing=0.1), [floats(2, 3, 4), floats(2, 3, 4, low=0), POSITIVE[0, :3]], 1
    ),
    "multi_margin": both("multi_margin_loss", floats(4, 3), classes(3, 4), constants=1, p=2, margin=0.7),
    "multi_margin of a vector": both("multi_margin_loss", floats(3), classes(3), constants=1, reduction="none"),
    "multilabel_margin": both("multilabel_margin_loss", floats(3, 4), LABELS, constants=1, reduction="none"),
    "multilabel_soft_margin": both(
        "multilabel_soft_margin_loss", floats(3, 4), signs(3, 4), floats(4, low=0.5), constants=1
    ),
    "triplet": both("triplet_margin_loss", floats(4, 3), floats(4, 3) * 0.5, floats(3, 4).T.copy(), swap=True, p=3),
    "normalize": both("normalize", floats(2, 3, 2), p=3),
    "normalize zeros": both("normalize", ZEROS, p=0.5),
    "pairwise_distance": both("pairwise_distance", floats(3, 4), floats(4), p=1.5),
    "pairwise_distance of equal points": both("pairwise_distance", ZEROS, ZEROS, eps=0.0),
    "pairwise_distance largest": both("pairwise_distance", floats(3, 4), floats(4), p=float("inf")),
    "cosine_similarity": both("cosine_similarity", floats(2, 1, 4), floats(1, 3, 4)),
}


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    assert_agrees(ROWS[name])


def test_weights_of_classes() -> None:
    x, target, weight = floats(4, 3), classes(3, 4), np.array([0.5, 2, 1], np.float32)
    y = meta.multi_margin_loss(meta.array(x), meta.array(target), weight=meta.array(weight), reduction="none")
    check(y, tf.multi_margin_loss(to_torch(x), to_torch(target), weight=to_torch(weight), reduction="none"))


def test_the_distance_of_a_triplet_may_be_given() -> None:
    x, p, n = (meta.array(floats(4, k)[:, :3].copy()) for k in (3, 4, 5))
    loss = meta.triplet_margin_with_distance_loss(x, p, n, lambda a, b: meta.sum(meta.abs(a - b), -1), 0.5)
    tensors = [to_torch(t.numpy()) for t in (x, p, n)]

    def distance(a: Any, b: Any) -> Any:
        return (a - b).abs().sum(-1)

    check(loss, tf.triplet_margin_with_distance_loss(*tensors, distance_function=distance, margin=0.5))


def test_programs_of_losses() -> None:
    def loss(x: Any, target: Any) -> Any:
        return meta.poisson_nll_loss(x, target, full=True) + meta.triplet_margin_loss(x, target, target + 1)

    hosts = floats(3, 4), POSITIVE
    arrays = [meta.array(h) for h in hosts]
    check(vm.compile(meta.trace(loss))(*arrays), loss(*arrays).numpy())


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: meta.kl_div(x, x, "average"), r'\[kl_div\] reduction is .average.; expected "mean", "sum", "batch'),
        (lambda x: meta.huber_loss(x, x, delta=0), r"\[huber_loss\] delta is 0; expected a positive number; l1_loss"),
        (lambda x: meta.margin_ranking_loss(x, x, meta.sum(x, 1)), r"shapes are \(3, 4\), \(3, 4\) and \(3,\)"),
        (lambda x: meta.cosine_embedding_loss(x, x, x), r"'target' \(3, 4\); expected x1 and x2 of rank 1 or 2"),
        (lambda x: meta.gaussian_nll_loss(x, x, -1.0), r"var is -1.0; expected 0 or more"),
        (lambda x: meta.gaussian_nll_loss(x, x, x, eps=0), r"eps is 0; expected a positive number"),
        (lambda x: meta.gaussian_nll_loss(x, x, meta.ones((4,))), r"'var' has shape \(4,\), 'x' \(3, 4\)"),
        (lambda x: meta.soft_cross_entropy(x, x, label_smoothing=2), r"label_smoothing is 2; expected from 0 to 1"),
        (lambda x: meta.soft_cross_entropy(x, meta.ones((3,))), r"'target' \(3,\); expected one shape .*; indices"),
        (lambda x: meta.multi_margin_loss(x, meta.zeros((3,), "int64"), 3), r"p is 3; expected 1 or 2"),
        (lambda x: meta.multi_margin_loss(x, meta.zeros((3,))), r"target is float32 of shape \(3,\)"),
        (lambda x: meta.multi_margin_loss(x, meta.zeros((3,), "int64"), weight=x), r"'weight' has shape \(3, 4\)"),
        (
            lambda x: meta.multi_margin_loss(meta.ones((2, 0)), x),
            r"'x' has shape \(2, 0\); expected \(batch, classes\)",
        ),
        (lambda x: meta.multilabel_margin_loss(x, x), r"target is float32 .*; expected integer labels, as many"),
        (lambda x: meta.triplet_margin_loss(x, x, x, margin=-1), r"\[triplet_margin_loss\] margin is -1"),
        (
            lambda x: meta.triplet_margin_with_distance_loss(x, x, meta.sum(x, 1)),
            r"shapes are .*\(3,\); expected equal",
        ),
    ],
)
def test_wrong_arguments(call: Callable[..., Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call(meta.ones((3, 4)))


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(
        TypeInferenceError, match=r"\[cosine_similarity\] shapes \(2, 3\) and \(4, 3\) do not broadcast"
    ):
        meta.cosine_similarity(meta.ones((2, 3)), meta.ones((4, 3)))


def test_half_precision_and_integers() -> None:
    x = torch.randn(3, 4).to(torch.bfloat16)
    y = meta.normalize(meta.from_dlpack(x))
    assert y.dtype == "bfloat16"
    loss = meta.margin_ranking_loss(meta.array([3, 1]), meta.array([1, 2]), meta.array([1, 1]), 0.5)
    assert loss.tolist() == 0.75
