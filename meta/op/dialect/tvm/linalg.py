"""TE computes of matrix products."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import te
from meta.op.dialect.tvm._register import compute


@compute("matmul")
def matmul(x1: Any, x2: Any, transpose_a: bool, transpose_b: bool, *, out: Any) -> Any:
    shape = out[0].shape
    k = te.reduce_axis((0, x1.shape[-2 if transpose_a else -1]), "k")
    wide = "float32" if x1.dtype in ("float16", "bfloat16") else x1.dtype

    def element(*i: Any) -> Any:
        *batch, m, n = i
        left, right = _batch(x1, batch), _batch(x2, batch)
        a = x1(*left, *((k, m) if transpose_a else (m, k)))
        b = x2(*right, *((n, k) if transpose_b else (k, n)))
        return te.sum(a.astype(wide) * b.astype(wide), k)

    product = te.compute(shape, element, "matmul")
    if wide == x1.dtype:
        return product
    return te.compute(shape, lambda *i: product(*i).astype(x1.dtype), "matmul_cast")


def _batch(x: Any, index: list[Any]) -> list[Any]:
    """The batch part of an index into `x`, whose batch axes may be fewer or of size 1."""
    axes = len(x.shape) - 2
    mine = index[len(index) - axes :]
    return [0 if _is_one(d) else i for d, i in zip(x.shape, mine, strict=False)]


def _is_one(extent: Any) -> bool:
    return getattr(extent, "value", None) == 1
