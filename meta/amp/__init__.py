"""Mixed precision: `with meta.amp.autocast("bfloat16"):` for eager code, `meta.passes.auto_cast` for programs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meta.amp.autocast import autocast
from meta.amp.grad_scaler import GradScaler
from meta.amp.report import AmpReport, CastCost, OperatorPrecision, report, rules
from meta.lazy import missing

__all__ = ["AmpReport", "CastCost", "GradScaler", "OperatorPrecision", "autocast", "report", "rules"]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:
    # Hidden from type checkers, which then report names that do not exist.
    __getattr__ = partial(missing, __name__)
