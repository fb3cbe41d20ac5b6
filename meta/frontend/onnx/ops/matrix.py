"""Matrix products and functions of matrices."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.frontend.onnx.ops._row import Node, row
from meta.functional._checks import as_dtype

row("MatMul")(lambda node, A, B: meta.matmul(A, B))
row("Det", since=11)(lambda node, X: meta.linalg.det(X))


@row("Gemm")
def gemm(
    node: Node, A: Tensor, B: Tensor, C: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0, broadcast: int = 1,
) -> Any:  # fmt: skip
    """alpha * A @ B + beta * C. broadcast: an attribute before opset 7, when C had to have the result's shape."""
    if transB and not transA and alpha == 1.0 and A.ndim == 2 and is_float(A.dtype):
        if C is None or beta == 0.0:
            return meta.dense(A, B)
        if C.ndim == 1 and beta == 1.0 and C.shape[0] == B.shape[0]:
            return meta.dense(A, B, C)
    y = _scaled(meta.matmul(A, B, bool(transA), bool(transB)), alpha)
    return y if C is None or beta == 0.0 else meta.add(y, _scaled(C, beta))


def _scaled(x: Tensor, factor: float) -> Any:
    if factor == 1.0:
        return x
    if is_float(x.dtype):
        return meta.multiply(x, factor)
    return as_dtype(meta.multiply(meta.cast(x, "float64"), factor), x.dtype)


row("Einsum", since=12)(lambda node, *Inputs, equation: meta.einsum(equation.replace(" ", ""), *Inputs))


@row("MatMulInteger", since=10)
def matmul_integer(
    node: Node, A: Tensor, B: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Any:
    """Zero points belong to all elements, to the rows of A or to the columns of B."""
    return meta.matmul(shifted(A, per_row(a_zero_point, A)), shifted(B, b_zero_point))


def per_row(zero: Any, x: Tensor) -> Any:
    """A zero point of each row of x as a column."""
    if zero is None or zero.ndim != 1 or zero.shape[0] == 1 or x.ndim < 2:
        return zero
    return meta.expand_dims(zero, 1)


def shifted(x: Tensor, zero: Any) -> Any:
    """x minus its zero point, in 32 bits."""
    wide = as_dtype(x, "int32")
    return wide if zero is None else meta.subtract(wide, as_dtype(zero, "int32"))
