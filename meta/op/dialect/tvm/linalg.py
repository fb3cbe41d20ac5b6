"""TE computes of matrix products."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import te
from meta.backend.tvm.te.elementwise import is_one
from meta.backend.tvm.te.precision import accumulation_dtype, narrow
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("matmul")
def matmul(x1: Any, x2: Any, transpose_a: bool, transpose_b: bool, *, out: Any) -> Any:
    row, column = len(x1.shape) == 1, len(x2.shape) == 1
    k = te.reduce_axis((0, x1.shape[-2 if transpose_a else -1]), "k")
    accumulator = accumulation_dtype(x1.dtype)

    def element(*i: Any) -> Any:
        batch = list(i[: len(i) - (not row) - (not column)])
        m, n = i[len(batch)] if not row else None, i[-1] if not column else None
        a = x1(k) if row else x1(*_batch_index(x1, batch), *((k, m) if transpose_a else (m, k)))
        b = x2(k) if column else x2(*_batch_index(x2, batch), *((n, k) if transpose_b else (k, n)))
        return te.sum(a.astype(accumulator) * b.astype(accumulator), k)

    return narrow(te.compute(out[0].shape, element, "matmul"), x1.dtype)


@compute("dense")
def dense(x: Any, w: Any, bias: Any, *, out: Any) -> Any:
    k = te.reduce_axis((0, w.shape[1]), "k")
    accumulator = accumulation_dtype(x.dtype)
    product = te.compute(
        out[0].shape, lambda *i: te.sum(x(*i[:-1], k).astype(accumulator) * w(i[-1], k).astype(accumulator), k), "dense"
    )
    if bias is None:
        return narrow(product, x.dtype)
    return te.compute(
        out[0].shape, lambda *i: (product(*i) + bias(i[-1]).astype(accumulator)).astype(x.dtype), "dense_bias"
    )


def _batch_index(x: Any, index: list[Any]) -> list[Any]:
    """The batch part of an index into `x`, whose batch axes broadcast."""
    axes = len(x.shape) - 2
    own_index = index[len(index) - axes :]
    return [0 if is_one(d) else i for d, i in zip(x.shape, own_index, strict=False)]
