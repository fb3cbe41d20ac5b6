"""Losses. ATen numbers their reductions: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import is_complex, is_float
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import reduction as named

ROWS: Rows = {}


@into(ROWS)
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    return meta.mse_loss(self, target, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def l1_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    if is_complex(self.dtype) or is_complex(target.dtype):
        distance = meta.abs(self - target)
        return meta.l1_loss(distance, meta.zeros_like(distance), named(reduction))  # type: ignore[arg-type]
    return meta.l1_loss(self, target, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def smooth_l1_loss(self: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    if beta < 0:
        raise ArgumentError("smooth_l1_loss", f"beta is {beta}", "0 or more")
    return meta.smooth_l1_loss(self, target, named(reduction), beta)  # type: ignore[arg-type]


@into(ROWS)
def cross_entropy_loss(
    self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if is_float(target.dtype):
        return meta.soft_cross_entropy(self, target, weight, named(reduction), label_smoothing)  # type: ignore[arg-type]
    return meta.cross_entropy(self, target, weight, named(reduction), ignore_index, label_smoothing)  # type: ignore[arg-type]


@into(ROWS, "nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return meta.nll_loss(self, target, weight, named(reduction), ignore_index)  # type: ignore[arg-type]


@into(ROWS, "nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The loss, and the sum of the weights of all targets that count: 0 without a reduction."""
    out = nll_loss(self, target, weight, reduction, ignore_index)
    if not reduction:
        return out, meta.zeros((), self.dtype, self.device)
    counts = meta.not_equal(target, ignore_index)
    if weight is None:
        return out, meta.sum(meta.cast(counts, self.dtype))
    return out, meta.sum(meta.where(counts, meta.take(weight, meta.where(counts, target, 0), 0), 0))


@into(ROWS)
def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return meta.binary_cross_entropy_with_logits(self, target, weight, pos_weight, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return meta.binary_cross_entropy(self, target, weight, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def huber_loss(self: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    return meta.huber_loss(self, target, named(reduction), delta)  # type: ignore[arg-type]


@into(ROWS)
def kl_div(self: Any, target: Any, reduction: int = 1, *, log_target: bool = False) -> Any:
    return meta.kl_div(self, target, named(reduction), log_target)  # type: ignore[arg-type]


@into(ROWS)
def soft_margin_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    return meta.soft_margin_loss(self, target, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def hinge_embedding_loss(self: Any, target: Any, margin: float = 1.0, reduction: int = 1) -> Any:
    return meta.hinge_embedding_loss(self, target, margin, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return meta.margin_ranking_loss(input1, input2, target, margin, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return meta.cosine_embedding_loss(input1, input2, target, margin, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    return meta.poisson_nll_loss(input, target, log_input, full, eps, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def multi_margin_loss(
    self: Any, target: Any, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: int = 1
) -> Any:
    return meta.multi_margin_loss(self, target, p, margin, weight, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def multilabel_margin_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    return meta.multilabel_margin_loss(self, target, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def multilabel_margin_loss_forward(self: Any, target: Any, reduction: int) -> Any:
    """The loss, and which classes are targets: those before the first negative one."""
    listed = meta.cumprod(meta.cast(meta.greater_equal(target, 0), self.dtype), -1)
    places = meta.maximum(target, 0)
    is_target = meta.scatter_reduce(meta.zeros_like(self), -1, places, listed, "amax")
    return multilabel_margin_loss(self, target, reduction), is_target


@into(ROWS)
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, reduction: int = 1,
) -> Any:  # fmt: skip
    return meta.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    kind: Any = named(reduction)
    return meta.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)
