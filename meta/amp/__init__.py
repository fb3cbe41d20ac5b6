"""Mixed precision: `with meta.amp.autocast("bfloat16"):` for eager code, `meta.passes.auto_cast` for programs."""

from __future__ import annotations

from meta.amp.autocast import autocast
from meta.amp.grad_scaler import GradScaler
from meta.amp.report import AmpReport, CastCost, OperatorPrecision, report, rules

__all__ = ["AmpReport", "CastCost", "GradScaler", "OperatorPrecision", "autocast", "report", "rules"]


def __dir__() -> list[str]:
    return sorted(__all__)
