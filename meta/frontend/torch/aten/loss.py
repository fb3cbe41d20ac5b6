"""Losses. ATen numbers their reductions: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex, is_float
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, reduction_name, row, rows, same

_PAIRED = {"input1": "x1", "input2": "x2"}

rows({
    **same(
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "hinge_embedding_loss", "huber_loss", "kl_div",
        "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "poisson_nll_loss", "soft_margin_loss",
        "triplet_margin_loss",
    ),
    "cosine_embedding_loss": direct("cosine_embedding_loss", **_PAIRED),
    "ctc_loss": direct("ctc_loss", log_probs="x", targets="target"),
    "margin_ranking_loss": direct("margin_ranking_loss", **_PAIRED), "nll_loss2d": "nll_loss",
    "nll_loss_nd": "nll_loss",
})  # fmt: skip


@row()
def l1_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Any:
    if is_complex(self.dtype) or is_complex(target.dtype):
        distance = meta.abs(self - target)
        return meta.l1_loss(distance, meta.zeros_like(distance), reduction_name(reduction))
    return meta.l1_loss(self, target, reduction_name(reduction))


@row()
def smooth_l1_loss(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Any:
    if beta < 0:
        raise ArgumentError("smooth_l1_loss", f"beta is {beta}", "0 or more")
    return meta.smooth_l1_loss(self, target, reduction_name(reduction), beta)


@row()
def cross_entropy_loss(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if is_float(target.dtype):
        return meta.soft_cross_entropy(self, target, weight, reduction_name(reduction), label_smoothing)
    return meta.cross_entropy(self, target, weight, reduction_name(reduction), ignore_index, label_smoothing)


@row("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
    """The loss, and the sum of the weights of all targets that count: 0 without a reduction."""
    out = meta.nll_loss(self, target, weight, reduction_name(reduction), ignore_index)
    if not reduction:
        return out, meta.zeros((), self.dtype, self.device)
    counts = meta.not_equal(target, ignore_index)
    if weight is None:
        return out, meta.sum(meta.cast(counts, self.dtype))
    return out, meta.sum(meta.where(counts, meta.take(weight, meta.where(counts, target, 0), 0), 0))


@row()
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> Any:
    """The loss, and which classes are targets: those before the first negative one."""
    listed = meta.cumprod(meta.cast(meta.greater_equal(target, 0), self.dtype), -1)
    places = meta.maximum(target, 0)
    is_target = meta.scatter_reduce(meta.zeros_like(self), -1, places, listed, "amax")
    return meta.multilabel_margin_loss(self, target, reduction_name(reduction)), is_target
