"""Operators: declarations, gradients, dialects and the dispatch between them."""

from __future__ import annotations

from types import ModuleType

from meta.lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
