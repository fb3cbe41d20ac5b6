"""Mixed precision: `with meta.amp.autocast("bfloat16"):` for eager code, the AutoCast pass for programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.amp.autocast import autocast as autocast
    from meta.amp.grad_scaler import GradScaler as GradScaler

_HOMES = {"autocast": "meta.amp.autocast", "GradScaler": "meta.amp.grad_scaler"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'meta.amp' has no attribute {name!r}")
