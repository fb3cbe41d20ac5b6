"""Losses. ATen numbers their reductions: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import reduction as named

ROWS: Rows = {}


@into(ROWS)
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    return meta.mse_loss(self, target, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def l1_loss(self: Any, target: Any, reduction: int = 1) -> Any:
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
    return meta.cross_entropy(self, target, weight, named(reduction), ignore_index, label_smoothing)  # type: ignore[arg-type]


@into(ROWS, "nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return meta.nll_loss(self, target, weight, named(reduction), ignore_index)  # type: ignore[arg-type]


@into(ROWS)
def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return meta.binary_cross_entropy_with_logits(self, target, weight, pos_weight, named(reduction))  # type: ignore[arg-type]
