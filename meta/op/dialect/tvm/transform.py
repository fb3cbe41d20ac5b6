"""TE computes of operators that change shape, type or place."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import te, tirx, topi
from meta.op.dialect.tvm._register import compute


@compute("cast")
def cast(x: Any, dtype: str) -> Any:
    if dtype == "bool":
        return te.compute(x.shape, lambda *i: x(*i) != tirx.const(0, x.dtype), "cast")
    return topi.cast(x, dtype)


@compute("broadcast_to", generic=False)
def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    return topi.broadcast_to(x, shape)


@compute("concatenate")
def concatenate(xs: list[Any], axis: int) -> Any:
    return topi.concatenate(xs, axis)
