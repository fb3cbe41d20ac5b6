"""Functions that call operators and need no kernel."""

from __future__ import annotations

from typing import Any

from meta.lazy import missing


def __getattr__(name: str) -> Any:
    """Raises AttributeError: the functions are names of `meta`."""
    return missing(__name__, name)
