"""TE computes of matrix products."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, is_one, narrow
from meta.backend.tvm.te.product import product
from meta.op.dialect.tvm import Registrar
from meta.op.work import product_fits_tiles

compute = Registrar(__file__).compute


@compute("matmul")
def matmul(x1: Tensor, x2: Tensor, transpose_a: bool, transpose_b: bool, *, out: Outs, kind: str) -> Any:
    if _in_tiles(kind, x1, x2, out[0].shape):
        return product(x1, x2, transpose_a, transpose_b, [int(d) for d in out[0].shape])
    row, column = len(x1.shape) == 1, len(x2.shape) == 1
    k = te.reduce_axis((0, x1.shape[-2 if transpose_a else -1]), "k")
    accumulator = accumulation_dtype(x1.dtype)

    def element(*i: Expr) -> Any:
        batch = list(i[: len(i) - (not row) - (not column)])
        m, n = i[len(batch)] if not row else None, i[-1] if not column else None
        a = x1(k) if row else x1(*_batch_index(x1, batch), *((k, m) if transpose_a else (m, k)))
        b = x2(k) if column else x2(*_batch_index(x2, batch), *((n, k) if transpose_b else (k, n)))
        return te.sum(a.astype(accumulator) * b.astype(accumulator), k)

    return narrow(te.compute(out[0].shape, element, "matmul"), x1.dtype)


@compute("dense")
def dense(x: Tensor, w: Tensor, bias: Tensor | None, *, out: Outs, kind: str) -> Any:
    accumulator = accumulation_dtype(x.dtype)
    if _in_tiles(kind, x, w, out[0].shape):
        y = product(x, w, False, True, [int(d) for d in out[0].shape])
    else:
        k = te.reduce_axis((0, w.shape[1]), "k")

        def element(*i: Expr) -> Any:
            return te.sum(x(*i[:-1], k).astype(accumulator) * w(i[-1], k).astype(accumulator), k)

        y = te.compute(out[0].shape, element, "dense")
    if bias is None:
        return narrow(y, x.dtype)
    return te.compute(out[0].shape, lambda *i: (y(*i) + bias(i[-1]).astype(accumulator)).astype(x.dtype), "dense_bias")


def _in_tiles(kind: str, x: Tensor, w: Tensor, shape: Any) -> bool:
    """Whether a product is computed in register tiles: on a CPU, with sizes that are known."""
    sizes = [*x.shape, *w.shape, *shape]
    if kind != "cpu" or not all(isinstance(d, (int, tirx.IntImm)) for d in sizes) or len(shape) != len(x.shape):
        return False
    return product_fits_tiles(str(x.dtype), *(tuple(map(int, sizes)) for sizes in (x.shape, w.shape, shape)))


def _batch_index(x: Tensor, index: list[Any]) -> list[Any]:
    """The batch part of an index into `x`, whose batch axes broadcast."""
    axes = len(x.shape) - 2
    own_index = index[len(index) - axes :]
    return [0 if is_one(d) else i for d, i in zip(x.shape, own_index, strict=False)]
