"""Calls that rules of passes emit."""

from __future__ import annotations

from typing import Any

from meta.ir.visitor import Scope
from meta.op.registry import get


def emit(scope: Scope, name: str, *args: Any) -> Any:
    """Emit a call of an operator, with its defaults for arguments after `args`; returns the variable of the result."""
    op = get(name)
    return scope.call(op, op.schema.bind(name, args, {}))
