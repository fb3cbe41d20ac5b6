"""Mixed precision: `with meta.amp.autocast("bfloat16"):` for eager code, the AutoCast pass for programs."""

from __future__ import annotations

from meta.amp.autocast import autocast
from meta.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
