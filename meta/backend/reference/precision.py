"""Accumulation dtypes of the NumPy implementations: half precisions compute in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meta import dtype as dtypes
from meta.dtype import Number
from meta.ir.type import operand_dtype, tensor_type


def widen(x: Any) -> Any:
    """Cast half precisions to float32; None stays None."""
    return x.astype(np.float32) if x is not None and x.dtype.name in dtypes.HALVES else x


def promote(*operands: Any) -> list[Any]:
    """Cast arrays and Python numbers to their common dtype, half precisions then to float32."""
    common = common_dtype(*operands)
    wide = np.dtype(dtypes.accumulation_dtype(common))
    return [_held(x, common).astype(wide) for x in operands]


def _held(x: Any, dtype: str) -> Any:
    """An array, or a number rounded to the dtype."""
    array: Any = x
    return array if isinstance(x, np.ndarray) else np.asarray(array).astype(dtypes.to_numpy(dtype))


def common_dtype(*operands: NDArray[Any] | Number) -> str:
    """The name of the dtype that arrays and Python numbers promote to."""
    types = [tensor_type(x.shape, dtypes.canonical(x.dtype)) if isinstance(x, np.ndarray) else x for x in operands]
    return operand_dtype(*types)


def floating(x: Any) -> Any:
    """Cast integers and booleans to float64, with the values that they have in float32, the dtype of the result;
    floating and complex dtypes stay."""
    return x if x.dtype.kind in "fc" else x.astype(np.float32).astype(np.float64)


def by_element(function: Callable[..., float]) -> Callable[..., Any]:
    """`function` of Python floats, on each element; NaN where an operand is NaN."""

    def one(*xs: float) -> float:
        return math.nan if any(map(math.isnan, xs)) else function(*map(float, xs))

    vectorized = np.vectorize(one, otypes=[np.float64])
    return lambda *xs: vectorized(*xs)
