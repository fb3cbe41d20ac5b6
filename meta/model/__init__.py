"""Models: classes with parameters, sub-models and a forward function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.model.model import Model as Model
    from meta.tracing import trace as trace
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.model.model": ("Model",),
        "meta.tracing": ("trace",),
    })  # fmt: skip
