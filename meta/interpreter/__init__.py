"""Eager execution: one operator call at a time, and IR programs op by op."""

from __future__ import annotations

from types import ModuleType

from meta.lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
