"""Schedules by fusion pattern."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm import _adapter as tvm


def schedule(func: Any, pattern: str, target: Any) -> Any:
    """The scheduled function."""
    return func
