"""Losses of margins, of distances and of distributions as layers. reduction: "mean", "sum" or "none"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from meta.functional._checks import Reduction
from meta.nn.function import FunctionLayer
from meta.nn.loss import ReducedLoss


class SoftMarginLoss(ReducedLoss, function="soft_margin_loss"):
    """log(1 + exp(-target * x)); targets are 1 and -1."""

    reduction: Reduction = "mean"


class HingeEmbeddingLoss(ReducedLoss, function="hinge_embedding_loss"):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    margin: float = 1.0
    reduction: Reduction = "mean"


class MarginRankingLoss(ReducedLoss, function="margin_ranking_loss", operands=("x1", "x2", "target")):
    """max(0, margin - target * (x1 - x2)); targets are 1 and -1."""

    margin: float = 0.0
    reduction: Reduction = "mean"


class CosineEmbeddingLoss(ReducedLoss, function="cosine_embedding_loss", operands=("x1", "x2", "target")):
    """1 - cos of the angle of two vectors where the target is 1, max(0, cos - margin) where it is -1."""

    margin: float = 0.0
    reduction: Reduction = "mean"


class GaussianNLLLoss(ReducedLoss, function="gaussian_nll_loss", operands=("x", "target", "var")):
    """(log(var) + (x - target)**2 / var) / 2; see meta.gaussian_nll_loss.

    full: add log(2 pi) / 2.  eps: the least variance."""

    full: bool = False
    eps: float = 1e-6
    reduction: Reduction = "mean"


class PoissonNLLLoss(ReducedLoss, function="poisson_nll_loss"):
    """exp(x) - target * x, or without log_input x - target * log(x + eps).

    full: add Stirling's approximation of log(target!)."""

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8
    reduction: Reduction = "mean"


class MultiMarginLoss(ReducedLoss, function="multi_margin_loss"):
    """The sum over other classes i of max(0, margin - x[target] + x[i])**p, divided by the number of classes.

    weight: multiplies the losses of each class."""

    p: int = 1
    margin: float = 1.0
    weight: ArrayLike | None = None
    reduction: Reduction = "mean"


class MultiLabelMarginLoss(ReducedLoss, function="multilabel_margin_loss"):
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]), divided by the number of classes; target:
    in each row the labels, then -1."""

    reduction: Reduction = "mean"


class MultiLabelSoftMarginLoss(ReducedLoss, function="multilabel_soft_margin_loss"):
    """The mean over the classes of the binary cross entropy of sigmoid(x).

    weight: multiplies the losses of each class."""

    weight: ArrayLike | None = None
    reduction: Reduction = "mean"


class TripletMarginLoss(ReducedLoss, function="triplet_margin_loss", operands=("anchor", "positive", "negative")):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) with the p-norm of differences plus eps as distance.

    swap: take the distance of positive and negative where it is less than the distance of anchor and negative."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: Reduction = "mean"


class TripletMarginWithDistanceLoss(
    ReducedLoss, function="triplet_margin_with_distance_loss", operands=("anchor", "positive", "negative")
):
    """TripletMarginLoss with a function as distance, by default the Euclidean one."""

    distance_function: Callable[[Any, Any], Any] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: Reduction = "mean"


class CTCLoss(ReducedLoss, function="ctc_loss", operands=("x", "target", "input_lengths", "target_lengths")):
    """The negative log-probability of sequences of labels (A. Graves et al., 2006); see meta.ctc_loss.

    blank: the class of no label.  zero_infinity: 0 for targets that do not fit into their inputs."""

    blank: int = 0
    reduction: Reduction = "mean"
    zero_infinity: bool = False


class PairwiseDistance(FunctionLayer, function="pairwise_distance", operands=("x1", "x2")):
    """The p-norm of x1 - x2 + eps along the last axis."""

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False


class CosineSimilarity(FunctionLayer, function="cosine_similarity", operands=("x1", "x2")):
    """The cosine of the angle of vectors along the axis dim; lengths count as at least eps."""

    dim: int = 1
    eps: float = 1e-8
