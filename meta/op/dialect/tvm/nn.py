"""TE computes of neural-network operators."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import topi
from meta.op.dialect.tvm._register import compute


@compute("softmax")
def softmax(x: Any, axis: int) -> Any:
    return topi.nn.softmax(x, axis)


@compute("softmax_dx")
def softmax_dx(y: Any, dy: Any, axis: int) -> Any:
    total = topi.sum(topi.multiply(y, dy), axis, keepdims=True)
    return topi.multiply(y, topi.subtract(dy, total))
