"""Backends: one package a dialect, one module a family of operators."""

from __future__ import annotations

from types import ModuleType

from meta.lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
