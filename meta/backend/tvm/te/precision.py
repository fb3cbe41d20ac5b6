"""Accumulation in a wider type: half precisions are summed in float32."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te


def accumulation_dtype(dtype: Any) -> str:
    """`meta.dtype.accumulation_dtype` of a dtype as TVM has it."""
    return dtypes.accumulation_dtype(str(dtype))


def widen(value: Any) -> Any:
    """An element in the dtype it is accumulated in."""
    dtype = str(value.ty)
    return value.astype(accumulation_dtype(dtype)) if dtype in dtypes.HALVES else value


def narrow(x: Any, dtype: str, name: str = "narrow") -> Any:
    """A tensor in `dtype`."""
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: x(*i).astype(dtype), name)
