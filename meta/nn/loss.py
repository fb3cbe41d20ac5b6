"""Losses as layers. reduction: "mean", "sum" or "none", for a loss of each element."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.errors import ArgumentError
from meta.functional._checks import Reduction
from meta.nn.function import FunctionLayer


class ReducedLoss(FunctionLayer, function=None, operands=("x", "target")):
    """Base class of losses that reduce the losses of elements or rows. Weights are buffers."""

    def _set_option(self, name: str, value: Any) -> None:
        if name in ("weight", "pos_weight") and value is not None:
            self.buffer(name, meta.asarray(value))
        else:
            super()._set_option(name, value)


class MSELoss(ReducedLoss, function="mse_loss"):
    """(x - target)**2."""

    reduction: Reduction = "mean"


class L1Loss(ReducedLoss, function="l1_loss"):
    """abs(x - target)."""

    reduction: Reduction = "mean"


class SmoothL1Loss(ReducedLoss, function="smooth_l1_loss"):
    """(x - target)**2 / (2 * beta) for differences below beta, abs(x - target) - beta / 2 above."""

    reduction: Reduction = "mean"
    beta: float = 1.0


class HuberLoss(ReducedLoss, function="huber_loss"):
    """delta times SmoothL1Loss with beta = delta (P. Huber, "Robust Estimation of a Location Parameter", 1964). Raises
    ArgumentError unless delta is positive."""

    reduction: Reduction = "mean"
    delta: float = 1.0

    def _set_option(self, name: str, value: Any) -> None:
        if name == "delta" and not value > 0:
            raise ArgumentError("HuberLoss", f"delta is {value}", "a positive number")
        super()._set_option(name, value)


class CrossEntropyLoss(ReducedLoss, function="cross_entropy"):
    """nll_loss of log_softmax(x); x: (n, classes, ...), target: (n, ...) integer classes, or probabilities of the shape
    of x.

    weight: weight of each class.  ignore_index: a class that does not count.
    label_smoothing: share of the target, from 0 to 1, spread evenly over all classes."""

    weight: ArrayLike | None = None
    ignore_index: int = -100
    reduction: Reduction = "mean"
    label_smoothing: float = 0.0

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        weight: Any = self.weight
        if is_float(target.dtype):
            return meta.soft_cross_entropy(x, target, weight, self.reduction, self.label_smoothing)
        return meta.cross_entropy(x, target, weight, self.reduction, self.ignore_index, self.label_smoothing)


class NLLLoss(ReducedLoss, function="nll_loss"):
    """-x of the target class; x: logarithms of probabilities, (n, classes, ...), target: (n, ...) integer classes.

    weight: weight of each class.  ignore_index: a class that does not count."""

    weight: ArrayLike | None = None
    ignore_index: int = -100
    reduction: Reduction = "mean"

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        weight: Any = self.weight
        return meta.nll_loss(x, target, weight, self.reduction, self.ignore_index)


class BCEWithLogitsLoss(ReducedLoss, function="binary_cross_entropy_with_logits"):
    """Binary cross entropy of sigmoid(x), computed without overflow; target: probabilities of the shape of x.

    weight: multiplies each loss.  pos_weight: multiplies the losses of positive targets."""

    weight: ArrayLike | None = None
    reduction: Reduction = "mean"
    pos_weight: ArrayLike | None = None

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        weights: tuple[Any, Any] = self.weight, self.pos_weight
        return meta.binary_cross_entropy_with_logits(x, target, *weights, self.reduction)


class BCELoss(ReducedLoss, function="binary_cross_entropy"):
    """-(target * log(x) + (1 - target) * log(1 - x)), with logarithms of at least -100; x: probabilities.

    weight: multiplies each loss."""

    weight: ArrayLike | None = None
    reduction: Reduction = "mean"


class KLDivLoss(FunctionLayer, function="kl_div", operands=("x", "target")):
    """target * (log(target) - x), 0 where the target is 0; x: logarithms of probabilities.

    reduction: also "batchmean", the sum divided by the size of the first axis.
    log_target: whether target also has logarithms."""

    reduction: Literal["mean", "sum", "none", "batchmean"] = "mean"
    log_target: bool = False
