"""Losses as layers. reduction: "mean", "sum" or "none", for a loss of each element."""

from __future__ import annotations

from typing import Literal

from numpy.typing import ArrayLike

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.functional._checks import Reduction, check_reduction
from meta.model.model import Model


class ReducedLoss(Model):
    """Base class of losses that reduce the losses of elements or rows."""

    reduction: Reduction

    def _set_reduction(self, reduction: Reduction, **options: object) -> None:
        """Set the reduction, checked, and the options as attributes."""
        check_reduction(type(self).__name__, reduction)
        self.reduction = reduction
        for name, value in options.items():
            setattr(self, name, value)


class _Elementwise(ReducedLoss):
    def build(self, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction)


class MSELoss(_Elementwise):
    """(x - target)**2."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.mse_loss(x, target, self.reduction)


class L1Loss(_Elementwise):
    """abs(x - target)."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.l1_loss(x, target, self.reduction)


class SmoothL1Loss(ReducedLoss):
    """(x - target)**2 / (2 * beta) for differences below beta, abs(x - target) - beta / 2 above."""

    def build(self, reduction: Reduction = "mean", beta: float = 1.0) -> None:
        self._set_reduction(reduction)
        self.beta = beta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.smooth_l1_loss(x, target, self.reduction, self.beta)


class HuberLoss(ReducedLoss):
    """delta times SmoothL1Loss with beta = delta (P. Huber, "Robust Estimation of a Location Parameter", 1964). Raises
    ArgumentError unless delta is positive."""

    def build(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        if not delta > 0:
            raise ArgumentError("HuberLoss", f"delta is {delta}", "a positive number")
        self._set_reduction(reduction)
        self.delta = delta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.huber_loss(x, target, self.reduction, self.delta)


class _Classes(ReducedLoss):
    weight: NDArray | None

    def _create(self, weight: ArrayLike | None, ignore_index: int, reduction: Reduction) -> None:
        self._set_reduction(reduction)
        self.weight = None
        if weight is not None:
            self.buffer("weight", meta.asarray(weight))
        self.ignore_index = ignore_index


class CrossEntropyLoss(_Classes):
    """nll_loss of log_softmax(x); x: (n, classes, ...), target: (n, ...) integer classes, or probabilities of the shape
    of x.

    weight: weight of each class.  ignore_index: a class that does not count.
    label_smoothing: share of the target, from 0 to 1, spread evenly over all classes."""

    def build(
        self,
        weight: ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        self._create(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if is_float(target.dtype):
            return meta.soft_cross_entropy(x, target, self.weight, self.reduction, self.label_smoothing)
        return meta.cross_entropy(x, target, self.weight, self.reduction, self.ignore_index, self.label_smoothing)


class NLLLoss(_Classes):
    """-x of the target class; x: logarithms of probabilities, (n, classes, ...), target: (n, ...) integer classes.

    weight: weight of each class.  ignore_index: a class that does not count."""

    def build(self, weight: ArrayLike | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        self._create(weight, ignore_index, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.nll_loss(x, target, self.weight, self.reduction, self.ignore_index)


class BCEWithLogitsLoss(ReducedLoss):
    """Binary cross entropy of sigmoid(x), computed without overflow; target: probabilities of the shape of x.

    weight: multiplies each loss.  pos_weight: multiplies the losses of positive targets."""

    weight: NDArray | None
    pos_weight: NDArray | None

    def build(
        self, weight: ArrayLike | None = None, reduction: Reduction = "mean", pos_weight: ArrayLike | None = None
    ) -> None:
        self._set_reduction(reduction)
        for name, value in (("weight", weight), ("pos_weight", pos_weight)):
            if value is None:
                setattr(self, name, None)
            else:
                self.buffer(name, meta.asarray(value))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.binary_cross_entropy_with_logits(x, target, self.weight, self.pos_weight, self.reduction)


class BCELoss(ReducedLoss):
    """-(target * log(x) + (1 - target) * log(1 - x)), with logarithms of at least -100; x: probabilities.

    weight: multiplies each loss."""

    weight: NDArray | None

    def build(self, weight: ArrayLike | None = None, reduction: Reduction = "mean") -> None:
        self._set_reduction(reduction)
        self.weight = None
        if weight is not None:
            self.buffer("weight", meta.asarray(weight))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.binary_cross_entropy(x, target, self.weight, self.reduction)


class KLDivLoss(Model):
    """target * (log(target) - x), 0 where the target is 0; x: logarithms of probabilities.

    reduction: also "batchmean", the sum divided by the size of the first axis.
    log_target: whether target also has logarithms."""

    reduction: Literal["mean", "sum", "none", "batchmean"]

    def build(self, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean", log_target: bool = False) -> None:
        check_reduction("KLDivLoss", reduction, "batchmean")
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return meta.kl_div(x, target, self.reduction, self.log_target)
