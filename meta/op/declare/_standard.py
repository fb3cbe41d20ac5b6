"""Whole declarations in one line, for families of operators that differ in little."""

from __future__ import annotations

import sys
from typing import Any

from meta.ir.type import TensorType, Type, Value
from meta.op import rules
from meta.op.registry import declare
from meta.schema import binary, unary


def _family() -> str:
    """The basename of the declaring module two frames up."""
    return sys._getframe(2).f_globals["__name__"].rsplit(".", 1)[-1]  # pyright: ignore[reportPrivateUsage]


def standard_unary(name: str, doc: str, *, floating: bool = True, **facts: Any) -> None:
    """An elementwise operator of one tensor with a result of the same type; `floating`: only floating dtypes."""

    def typed(x: TensorType) -> TensorType:
        if floating:
            rules.require_float(name, "x", x)
        return x

    facts = {"pattern": "elemwise", "method": True, "family": _family()} | facts
    declare(name, schema=unary.unary, doc=doc, **facts)(typed)


def standard_unary_dx(name: str, *, needs: str, doc: str = "", **facts: Any) -> None:
    """The backward operator of an elementwise one; `needs` is what it reads besides dy, "x" or "y"."""
    forward = name.removesuffix("_dx")
    schema = unary.unary_dx_x if needs == "x" else unary.unary_dx_y

    def typed(value: TensorType, dy: TensorType) -> TensorType:
        rules.require_same_shape(name, **{needs: value}, dy=dy)
        rules.require_same_dtype(name, **{needs: value}, dy=dy)
        return dy

    facts = {"pattern": "elemwise", "family": _family()} | facts
    declare(name, schema=schema, doc=doc or f"Gradient of {forward}.", **facts)(typed)


def standard_binary(name: str, doc: str, *, dtype: str | None = None, scalar: Any = None, **facts: Any) -> None:
    """An elementwise operator of two operands: shapes broadcast, dtypes promote; `dtype` fixes that of the result.

    `scalar` computes the result for two Python numbers."""

    def typed(x1: rules.ScalarOrType, x2: rules.ScalarOrType) -> Type:
        if not isinstance(x1, TensorType) and not isinstance(x2, TensorType):
            rules.require(name, scalar is not None, "both operands are numbers", "at least one tensor")
            return Value(scalar(x1, x2))
        return rules.broadcast_type(name, x1, x2, dtype=dtype)

    facts = {"pattern": "broadcast", "method": True, "family": _family()} | facts
    declare(name, schema=binary.binary, doc=doc, **facts)(typed)


