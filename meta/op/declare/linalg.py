"""Declarations of matrix products."""

from __future__ import annotations

from meta.ir.dim import same_dim
from meta.ir.type import TensorType, tensor_type
from meta.op import rules
from meta.op.registry import declare
from meta.schema import linalg


@declare("matmul", schema=linalg.matmul, pattern="out_ewise_fusable", amp="always", method=True, operator="__matmul__",
         aten="matmul", onnx="MatMul")  # fmt: skip
def matmul(x1: TensorType, x2: TensorType, transpose_a: bool, transpose_b: bool) -> TensorType:
    """Matrix product over the last two axes; leading axes broadcast. Both operands have at least two axes."""
    rules.require("matmul", x1.ndim >= 2 and x2.ndim >= 2,
                  f"shapes are {rules.show(x1.shape)} and {rules.show(x2.shape)}", "at least two axes each",
                  "expand_dims first")  # fmt: skip
    rules.same_device("matmul", x1, x2)
    rules.require_same_dtype("matmul", x1=x1, x2=x2)
    m, k1 = x1.shape[-2:] if not transpose_a else x1.shape[:-3:-1]
    k2, n = x2.shape[-2:] if not transpose_b else x2.shape[:-3:-1]
    rules.require("matmul", same_dim(k1, k2),
                  f"shapes {rules.show(x1.shape)} and {rules.show(x2.shape)} contract {k1} with {k2}"
                  f" (transpose_a={transpose_a}, transpose_b={transpose_b})", "equal sizes")  # fmt: skip
    batch = rules.broadcast_shapes("matmul", x1.shape[:-2], x2.shape[:-2])
    return tensor_type((*batch, m, n), x1.dtype, x1.device)
