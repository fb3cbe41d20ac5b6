"""TE computes of operators that create tensors."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import topi
from meta.op.dialect.tvm._register import compute


@compute("zeros", generic=False)
def zeros(shape: tuple[int, ...], dtype: str, device: Any) -> Any:
    return topi.full(shape, dtype, 0)


@compute("ones", generic=False)
def ones(shape: tuple[int, ...], dtype: str, device: Any) -> Any:
    return topi.full(shape, dtype, 1)
