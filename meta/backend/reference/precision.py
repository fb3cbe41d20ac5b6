"""The dtypes that NumPy computes in: half precisions in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.ir.promotion import promoted_dtype
from meta.ir.type import tensor_type


def widen(x: Any) -> Any:
    """The array in the dtype it is computed in; None stays None."""
    return x.astype(np.float32) if x is not None and x.dtype.name in dtypes.HALVES else x


def together(*operands: Any) -> list[Any]:
    """Arrays and Python numbers as arrays of their common dtype, halves as float32."""
    kinds = [tensor_type(x.shape, dtypes.canonical(x.dtype)) if isinstance(x, np.ndarray) else x for x in operands]
    dtype = promoted_dtype(*kinds)
    common = np.dtype(dtypes.accumulation_dtype(dtype))
    return [np.asarray(x).astype(common) for x in operands]


def floating(x: Any) -> Any:
    """x itself, or as float64 when it is of integers or booleans."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)
