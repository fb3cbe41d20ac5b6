"""Losses."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.onnx.ops._row import Node, row

_NEVER = -(2**31)
"""A class that no target is."""


@row("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(
    node: Node, input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:  # fmt: skip
    """input: (batch, classes, ...), logarithms of probabilities.  target: (batch, ...)."""
    return _by_classes(meta.nll_loss, input, target, weight, reduction, ignore_index)


@row("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    node: Node, scores: Any, labels: Any, weights: Any = None, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:  # fmt: skip
    """The loss, and the logarithms of the probabilities."""
    loss = _by_classes(meta.cross_entropy, scores, labels, weights, reduction, ignore_index)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return loss
    return loss, meta.log_softmax(scores, 1)


def _by_classes(function: Any, x: Tensor, target: Tensor, weight: Any, reduction: str, ignored: int | None) -> Any:
    return function(x, target, weight, reduction, _NEVER if ignored is None else ignored)
