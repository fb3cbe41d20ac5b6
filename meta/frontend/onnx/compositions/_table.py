"""Operators that ONNX has no node for, as calls of operators that it has nodes for. The modules of this folder fill the
table.

    @composition("xlogy")
    def xlogy(x1: Any, x2: Any) -> Any: ...

A composition receives the arguments of a call in the order of the schema, with symbols for tensors, and returns its
results; or None for arguments that it does not cover.
"""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.rows import RowTable
from meta.schema._dsl import TensorLike

_table = RowTable("meta.frontend.onnx.compositions")
composition, compositions = _table.row, _table.rows


def like(value: Any, other: Any) -> Any:
    """An operand that may be a number, as a tensor of the dtype of another one."""
    if not isinstance(value, TensorLike):
        return meta.full((), value, other.dtype)
    x: Any = value
    return x if x.dtype == other.dtype else meta.cast(x, other.dtype)


def pair(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two operands, one of them perhaps a number, in one dtype; None where both have other dtypes."""
    first = x1 if isinstance(x1, TensorLike) else x2
    return like(x1, first), like(x2, first)
