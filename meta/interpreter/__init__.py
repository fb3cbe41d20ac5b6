"""Programs of the IR, run one operator at a time with eager calls."""

from __future__ import annotations

from types import ModuleType

from meta.lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
