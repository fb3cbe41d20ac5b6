"""Losses of margins, of distances and of distributions as layers. reduction: "mean", "sum" or "none"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.functional._checks import Reduction
from meta.model.model import Model
from meta.nn.loss import ReducedLoss


class _Weighted(ReducedLoss):
    weight: NDArray | None

    def _weigh(self, weight: ArrayLike | None) -> None:
        self.weight = None
        if weight is not None:
            self.buffer("weight", meta.asarray(weight))


class SoftMarginLoss(ReducedLoss):
    """log(1 + exp(-target * x)); targets are 1 and -1."""

    def build(self, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.soft_margin_loss(x, target, self.reduction)


class HingeEmbeddingLoss(ReducedLoss):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    margin: float

    def build(self, margin: float = 1.0, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction, margin=margin)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.hinge_embedding_loss(x, target, self.margin, self.reduction)


class MarginRankingLoss(ReducedLoss):
    """max(0, margin - target * (x1 - x2)); targets are 1 and -1."""

    margin: float

    def build(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction, margin=margin)

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return meta.margin_ranking_loss(x1, x2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(ReducedLoss):
    """1 - cos of the angle of two vectors where the target is 1, max(0, cos - margin) where it is -1."""

    margin: float

    def build(self, margin: float = 0.0, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction, margin=margin)

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return meta.cosine_embedding_loss(x1, x2, target, self.margin, self.reduction)


class GaussianNLLLoss(ReducedLoss):
    """(log(var) + (x - target)**2 / var) / 2; see meta.gaussian_nll_loss.

    full: add log(2 pi) / 2.  eps: the least variance."""

    full: bool
    eps: float

    def build(self, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction, full=full, eps=eps)

    def forward(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return meta.gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)


class PoissonNLLLoss(ReducedLoss):
    """exp(x) - target * x, or without log_input x - target * log(x + eps).

    full: add Stirling's approximation of log(target!)."""

    log_input: bool
    full: bool
    eps: float

    def build(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Reduction = "mean"
    ) -> None:
        self._set_reduction(reduction, log_input=log_input, full=full, eps=eps)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.poisson_nll_loss(x, target, self.log_input, self.full, self.eps, self.reduction)


class MultiMarginLoss(_Weighted):
    """The sum over other classes i of max(0, margin - x[target] + x[i])**p, divided by the number of classes.

    weight: multiplies the losses of each class."""

    p: int
    margin: float

    def build(
        self, p: int = 1, margin: float = 1.0, weight: ArrayLike | None = None, reduction: Reduction = "mean"
    ) -> None:
        self._set_reduction(reduction, p=p, margin=margin)
        self._weigh(weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.multi_margin_loss(x, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(ReducedLoss):
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]), divided by the number of classes; target:
    in each row the labels, then -1."""

    def build(self, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.multilabel_margin_loss(x, target, self.reduction)


class MultiLabelSoftMarginLoss(_Weighted):
    """The mean over the classes of the binary cross entropy of sigmoid(x).

    weight: multiplies the losses of each class."""

    def build(self, weight: ArrayLike | None = None, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction)
        self._weigh(weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class TripletMarginLoss(ReducedLoss):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) with the p-norm of differences plus eps as distance.

    swap: take the distance of positive and negative where it is less than the distance of anchor and negative."""

    margin: float
    p: float
    eps: float
    swap: bool

    def build(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: Reduction = "mean"
    ) -> None:
        self._set_reduction(reduction, margin=margin, p=p, eps=eps, swap=swap)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = (self.margin, self.p, self.eps, self.swap, self.reduction)
        return meta.triplet_margin_loss(anchor, positive, negative, *options)


class TripletMarginWithDistanceLoss(ReducedLoss):
    """TripletMarginLoss with a function as distance, by default the Euclidean one."""

    distance_function: Callable[[Any, Any], Any] | None
    margin: float
    swap: bool

    def build(
        self, distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0, swap: bool = False,
        reduction: Reduction = "mean",
    ) -> None:  # fmt: skip
        self._set_reduction(reduction, distance_function=distance_function, margin=margin, swap=swap)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = (self.distance_function, self.margin, self.swap, self.reduction)
        return meta.triplet_margin_with_distance_loss(anchor, positive, negative, *options)


class CTCLoss(ReducedLoss):
    """The negative log-probability of sequences of labels (A. Graves et al., 2006); see meta.ctc_loss.

    blank: the class of no label.  zero_infinity: 0 for targets that do not fit into their inputs."""

    blank: int
    zero_infinity: bool

    def build(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False) -> None:
        self._set_reduction(reduction, blank=blank, zero_infinity=zero_infinity)

    def forward(
        self, x: Tensor, target: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor
    ) -> Tensor:
        options = (self.blank, self.reduction, self.zero_infinity)
        return meta.ctc_loss(x, target, input_lengths, target_lengths, *options)


class PairwiseDistance(Model):
    """The p-norm of x1 - x2 + eps along the last axis."""

    def build(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return meta.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)


class CosineSimilarity(Model):
    """The cosine of the angle of vectors along the axis dim; lengths count as at least eps."""

    def build(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return meta.cosine_similarity(x1, x2, self.dim, self.eps)
