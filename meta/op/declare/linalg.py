"""Declarations of matrix products.

A weight in 8 or 4 bits is an integer times the scale of its group, k // groups neighbours of a row of k weights; one
group gives a scale per output channel. In 8 bits the integer is stored as it is. In 4 bits it is stored plus 8, and a
byte has two: of a group of g weights, byte j has weight j in its low bits and weight j + g // 2 in its high bits, so
that both halves of a vector of bytes belong to neighbouring inputs."""

from __future__ import annotations

from meta.dim import Dim
from meta.dtype import is_float
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
        rules.same_shape(x.shape[-1:], (k,)),
        f"'x' has shape {rules.show(x.shape)}, 'w' {rules.show(w.shape)}",
        "equal last sizes",
        "write w.T: w is (out, in)" if rules.is_known_equal(x.shape[-1], n) else "",
    )
    if bias is not None:
        rules.same_device(x, bias)
        rules.require_same_dtype(x=x, bias=bias)
        rules.require(
            rules.same_shape(bias.shape, (n,)),
            f"'bias' has shape {rules.show(bias.shape)}",
            f"({n},)",
        )
    return x.with_shape((*x.shape[:-1], n))


@declare("dense_int8", schema=linalg.dense_int8, pattern="out_ewise_fusable", amp="keep")
def dense_int8(x: TensorType, w: TensorType, columns: int) -> TensorType:
    """dense of bytes, with sums in int32: (..., m, k) to (..., m, columns). Programs call it for products of quantised
    numbers; weights are packed so that four terms of a register of columns are adjacent, with zeros behind the last
    ones."""
    rules.require(x.ndim >= 2, f"'x' has shape {rules.show(x.shape)}", "(..., m, k)")
    rules.require_packed_bytes(x, w, 4, "(panels, k / 4, panel size, 4)", columns, x.shape[-1])
    return tensor_type((*x.shape[:-1], columns), "int32", x.device)


def _weights(w: TensorType, scale: TensorType) -> Dim:
    """The number of weights in a row."""
    rules.same_device(w, scale)
    rules.require(w.dtype in ("int8", "uint8"), f"'w' is {w.dtype}", "int8, or uint8 with two weights in a byte")
    rules.require_float("scale", scale)
    rules.require(w.ndim >= 1, "'w' has shape ()", "(..., k)")
    shapes = f"'w' has shape {rules.show(w.shape)}, 'scale' {rules.show(scale.shape)}"
    leading = f"({', '.join(map(str, (*w.shape[:-1], 'groups')))})"
    rules.require(
        scale.ndim == w.ndim and rules.same_shape(w.shape[:-1], scale.shape[:-1]), shapes, f"scales {leading}"
    )
    packed, groups = w.shape[-1], scale.shape[-1]
    if isinstance(packed, int) and isinstance(groups, int):
        rules.require(groups >= 1 and packed % groups == 0, shapes, "groups that divide a row of 'w'")
    return packed if w.dtype == "int8" else packed * 2


@declare("dequantize_weight", schema=linalg.dequantize_weight, pattern="injective", amp="keep")
def dequantize_weight(w: TensorType, scale: TensorType, dtype: str) -> TensorType:
    """Weights in 8 or 4 bits as floats: each integer times the scale of its group, (..., k)."""
    k = _weights(w, scale)
    rules.require(is_float(dtype), f"dtype is {dtype}", "a floating dtype")
    return tensor_type((*w.shape[:-1], k), dtype, w.device)


@declare(
    "quantized_dense", schema=linalg.quantized_dense, pattern="out_ewise_fusable", amp="always",
    amp_args=("x", "bias"),
)  # fmt: skip
def quantized_dense(x: TensorType, w: TensorType, scale: TensorType, bias: TensorType | None) -> TensorType:
    """x @ dequantize_weight(w, scale)^T + bias: `dense` with constant weights in 8 or 4 bits, (..., k) to (..., n).

    Sums are of the precision of `dense`. For a few rows kernels read the weights as they are stored; programs convert
    them for more rows."""
    rules.require(
        x.ndim >= 1 and w.ndim == 2,
        f"shapes are {rules.show(x.shape)} and {rules.show(w.shape)}",
        "x of at least one axis and w of two",
    )
    rules.require_float("x", x)
    rules.same_device(x, w)
    k = _weights(w, scale)
    problem = f"'x' has shape {rules.show(x.shape)}, 'w' {w.dtype} of shape {rules.show(w.shape)}"
    rules.require(rules.same_shape(x.shape[-1:], (k,)), problem, f"'x' with {k} elements in a row")
    if bias is not None:
        rules.same_device(x, bias)
        rules.require_same_dtype(x=x, bias=bias)
        problem = f"'bias' has shape {rules.show(bias.shape)}"
        rules.require(rules.same_shape(bias.shape, w.shape[:1]), problem, f"({w.shape[0]},)")
    return x.with_shape((*x.shape[:-1], w.shape[0]))
