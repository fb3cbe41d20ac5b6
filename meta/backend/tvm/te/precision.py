"""Accumulation in a wider dtype: halves are summed in float32."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te


def accumulation_dtype(dtype: Any) -> str:
    """`meta.dtype.accumulation_dtype` of a TVM dtype."""
    return dtypes.accumulation_dtype(str(dtype))


def widen(value: Any) -> Any:
    """An element in its accumulation dtype."""
    dtype = str(value.ty)
    return value.astype(accumulation_dtype(dtype)) if dtype in dtypes.HALVES else value


def narrow(x: Any, dtype: str, name: str = "narrow") -> Any:
    """A tensor cast to `dtype`; the tensor itself if it has that dtype."""
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: x(*i).astype(dtype), name)
