"""Accumulation dtypes of the NumPy implementations: half precisions compute in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.ir.promotion import promoted_dtype
from meta.ir.type import tensor_type


def widen(x: Any) -> Any:
    """Cast half precisions to float32; None stays None."""
    return x.astype(np.float32) if x is not None and x.dtype.name in dtypes.HALVES else x


def promote(*operands: Any) -> list[Any]:
    """Cast arrays and Python numbers to their common dtype, half precisions to float32."""
    types = [tensor_type(x.shape, dtypes.canonical(x.dtype)) if isinstance(x, np.ndarray) else x for x in operands]
    dtype = promoted_dtype(*types)
    common = np.dtype(dtypes.accumulation_dtype(dtype))
    return [np.asarray(x).astype(common) for x in operands]


def floating(x: Any) -> Any:
    """Cast integers and booleans to float64; floating and complex dtypes stay."""
    return x if x.dtype.kind in "fc" else x.astype(np.float64)
