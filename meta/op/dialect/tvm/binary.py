"""TE computes of elementwise operators of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.op.dialect.tvm._adapter import topi
from meta.op.dialect.tvm._register import compute
from meta.op.rules import promoted_dtype


def promoted(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function` on operands cast to their common dtype (Python scalars become constants of it)."""

    def run(x1: Any, x2: Any) -> Any:
        from meta.ir.type import tensor_type

        kinds = [x if isinstance(x, (bool, int, float)) else tensor_type((), x.dtype) for x in (x1, x2)]
        dtype = promoted_dtype(*kinds)
        return function(*(operand(x, dtype) for x in (x1, x2)))

    return run


def operand(x: Any, dtype: str) -> Any:
    """A tensor cast to `dtype`, or a constant of it."""
    from meta.op.dialect.tvm._adapter import tirx

    if isinstance(x, (bool, int, float)):
        return tirx.const(x, dtype)
    return x if x.dtype == dtype else topi.cast(x, dtype)


for _name, _function in {"add": topi.add, "subtract": topi.subtract, "multiply": topi.multiply}.items():
    compute(_name)(promoted(_function))
