"""Helpers of decompositions."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.dtype import is_inexact
from meta.ir.type import operand_dtype
from meta.op.registry import as_type
from meta.op.rules import first_tensor
from meta.schema._dsl import TensorLike


def promoted(*operands: Any) -> list[Any]:
    """Tensors and Python numbers as tensors of their common dtype."""
    return _converted(operand_dtype(*map(as_type, operands)), operands)


def floating(*operands: Any) -> list[Any]:
    """The same, in float32 if that is an integer dtype or bool."""
    dtype = operand_dtype(*map(as_type, operands))
    return _converted(dtype if is_inexact(dtype) else "float32", operands)


def _converted(dtype: str, operands: tuple[Any, ...]) -> list[Any]:
    tensor: Any = first_tensor(map(as_type, operands))

    def convert(x: Any) -> Any:
        if isinstance(x, TensorLike):
            return x if x.dtype == dtype else meta.cast(x, dtype)  # type: ignore[attr-defined]
        return meta.full((), x, dtype, tensor.device)

    return list(map(convert, operands))


def in_dtype(x: Any, *numbers: float) -> tuple[float, ...]:
    """Numbers as the dtype of x holds them: truncated for integers."""
    return numbers if is_inexact(x.dtype) else tuple(map(math.trunc, numbers))


def clamped(x: Any, low: float | None, high: float | None) -> Any:
    """min(max(x, low), high) for low <= high; NaN stays NaN."""
    x = x if low is None else meta.where(x < low, low, x)
    return x if high is None else meta.where(x > high, high, x)
