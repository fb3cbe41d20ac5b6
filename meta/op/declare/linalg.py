"""Declarations of matrix products."""

from __future__ import annotations

from meta.dim import same_dim
from meta.ir.type import TensorType, tensor_type
from meta.op import rules
from meta.op.registry import declare
from meta.schema import linalg


@declare(
    "matmul",
    schema=linalg.matmul,
    pattern="out_ewise_fusable",
    amp="always",
    method=True,
    operator="__matmul__",
    complex="analytic",
)
def matmul(x1: TensorType, x2: TensorType, transpose_a: bool, transpose_b: bool) -> TensorType:
    """Matrix product over the last two axes; leading axes broadcast.

    A 1-D operand is a row (on the left) or a column (on the right), and that axis is absent from the result, as with
    numpy.matmul. Half-precision products are accumulated in float32."""
    shapes = f"{rules.show(x1.shape)} and {rules.show(x2.shape)}"
    rules.require(
        x1.ndim >= 1 and x2.ndim >= 1,
        f"shapes are {shapes}",
        "at least one axis each",
        "multiply by a scalar with *",
    )
    rules.require(
        (x1.ndim > 1 or not transpose_a) and (x2.ndim > 1 or not transpose_b),
        f"shapes {shapes} with transpose_a={transpose_a}, transpose_b={transpose_b}",
        "to transpose, at least two axes",
    )
    rules.same_device(x1, x2)
    rules.require_same_dtype(x1=x1, x2=x2)
    rules.require_number("x1", x1)
    left = x1.shape if x1.ndim > 1 else (1, *x1.shape)
    right = x2.shape if x2.ndim > 1 else (*x2.shape, 1)
    m, k1 = left[-2:] if not transpose_a else left[:-3:-1]
    k2, n = right[-2:] if not transpose_b else right[:-3:-1]
    rules.require_contracted(
        (x1.shape, x2.shape),
        (k1, k2),
        (m if x1.ndim > 1 else k1, n if x2.ndim > 1 else k2),
        (f"transpose_a={not transpose_a} (x1.mT)", f"transpose_b={not transpose_b} (x2.mT)"),
        f" (transpose_a={transpose_a}, transpose_b={transpose_b})",
    )
    batch = rules.broadcast_shapes(left[:-2], right[:-2])
    matrix_shape = (m,) * (x1.ndim > 1) + (n,) * (x2.ndim > 1)
    return tensor_type((*batch, *matrix_shape), x1.dtype, x1.device)


@declare("dense", schema=linalg.dense, pattern="out_ewise_fusable", amp="always")
def dense(x: TensorType, w: TensorType, bias: TensorType | None) -> TensorType:
    """x @ w^T + bias: (..., k) and (n, k) to (..., n). Half-precision products are accumulated in float32."""
    rules.require(
        x.ndim >= 1 and w.ndim == 2,
        f"shapes are {rules.show(x.shape)} and {rules.show(w.shape)}",
        "x of at least one axis and w of two",
    )
    rules.same_device(x, w)
    rules.require_same_dtype(x=x, w=w)
    rules.require_number("x", x)
    n, k = w.shape
    rules.require(
        same_dim(x.shape[-1], k),
        f"'x' has shape {rules.show(x.shape)}, 'w' {rules.show(w.shape)}",
        "equal last sizes",
        "write w.T: w is (out, in)" if rules.is_known_equal(x.shape[-1], n) else "",
    )
    if bias is not None:
        rules.same_device(x, bias)
        rules.require_same_dtype(x=x, bias=bias)
        rules.require(
            bias.ndim == 1 and same_dim(bias.shape[0], n),
            f"'bias' has shape {rules.show(bias.shape)}",
            f"({n},)",
        )
    return x.with_shape((*x.shape[:-1], n))
