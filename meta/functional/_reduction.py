"""The reduction of losses."""

from __future__ import annotations

from typing import Literal

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError

Reduction = Literal["mean", "sum", "none"]


def check_reduction(name: str, reduction: str, *more: str) -> None:
    """Raise ArgumentError unless `reduction` is "mean", "sum", "none" or one of `more`."""
    if reduction not in ("mean", "sum", "none", *more):
        allowed = ", ".join(f'"{r}"' for r in ("mean", "sum", *more))
        raise ArgumentError(name, f"reduction is {reduction!r}", f'{allowed} or "none"')


def reduced(losses: T, reduction: str) -> T:
    """The mean or the sum of all losses, or the losses themselves."""
    if reduction == "none":
        return losses
    return meta.mean(losses) if reduction == "mean" else meta.sum(losses)
