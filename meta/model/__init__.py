"""Models: classes with parameters, sub-models and a forward function."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.model.model import Model as Model
    from meta.tracing import trace as trace

_HOMES = {"Model": "meta.model.model", "trace": "meta.tracing"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'meta.model' has no attribute {name!r}")
