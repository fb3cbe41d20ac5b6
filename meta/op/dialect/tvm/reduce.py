"""TE computes of reductions."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import topi
from meta.op.dialect.tvm._register import compute


@compute("sum")
def sum(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:  # noqa: A001
    x = x if x.dtype == out[0].dtype else topi.cast(x, out[0].dtype)
    if len(x.shape) == 0 or axis == ():
        return x
    return topi.sum(x, axis, keepdims)


@compute("sum_to", generic=False)
def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    if tuple(int(d) for d in x.shape) == tuple(shape):
        return topi.identity(x)
    lead = len(x.shape) - len(shape)
    axes = [i for i, d in enumerate(x.shape) if i < lead or (shape[i - lead] == 1 and int(d) != 1)]
    return topi.reshape(topi.sum(x, axes, True), shape)
