"""Calls that rules of passes match and emit."""

from __future__ import annotations

from typing import Any, Final

from meta.ir.expr import Call
from meta.ir.visitor import Scope
from meta.op.registry import get

VIEWS: Final = ("reshape", "squeeze", "expand_dims", "reshape_like")
"""Operators that change only the shape."""


def plain_call(value: object, *ops: str) -> Call | None:
    """A call without attributes for which no dialect has been chosen, of one of `ops` if any are named; else None."""
    if not isinstance(value, Call) or value.dialect is not None or value.attrs:
        return None
    return value if not ops or value.op_name in ops else None


def emit(scope: Scope, name: str, *args: Any) -> Any:
    """Emit a call of an operator, with its defaults for arguments after `args`; returns the variable of the result."""
    op = get(name)
    return scope.call(op, op.schema.bind(name, args, {}))
