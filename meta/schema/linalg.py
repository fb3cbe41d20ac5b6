"""Schemas of matrix products."""

from meta.schema._dsl import Arg, Bool, DType, Int, OptionalTensor, Schema, Tensor

matmul = Schema(
    "matmul",
    Arg("x1", Tensor, doc="Left operand, (..., m, k), or (..., k, m) when transposed, or (k,)."),
    Arg("x2", Tensor, doc="Right operand, (..., k, n), or (..., n, k) when transposed, or (k,); batch axes broadcast."),
    Arg("transpose_a", Bool, False, doc="Whether to swap the last two axes of x1 first."),
    Arg("transpose_b", Bool, False, doc="Whether to swap the last two axes of x2 first."),
)
dense = Schema(
    "dense",
    Arg("x", Tensor, doc="Input, (..., k)."),
    Arg("w", Tensor, doc="Weight, (n, k)."),
    Arg("bias", OptionalTensor, None, doc="Added to every row, (n,)."),
)
_packed = Arg("w", Tensor, doc="Weights in 8 bits, int8 of shape (..., k), or in 4 bits, uint8 of shape (..., k // 2).")
_scale = Arg("scale", Tensor, doc="Floating, (..., groups): the factor of each group of k // groups weights.")

dequantize_weight = Schema(
    "dequantize_weight", _packed, _scale, Arg("dtype", DType, "float32", doc="Floating dtype of the result.")
)
dense_int8 = Schema(
    "dense_int8",
    Arg("x", Tensor, doc="Bytes, int8 or uint8, (..., m, k)."),
    Arg("w", Tensor, doc="Packed weights, int8, (panels, k / 4, columns of a panel, 4)."),
    Arg("columns", Int, doc="Columns of the result; those after them, in the last panel, do not count."),
)
quantized_dense = Schema(
    "quantized_dense",
    Arg("x", Tensor, doc="Input, (..., k), floating."),
    Arg("w", Tensor, doc="Weights in 8 bits, int8 of shape (n, k), or in 4 bits, uint8 of shape (n, k // 2)."),
    Arg("scale", Tensor, doc="Floating, (n, groups): the factor of each group of k // groups weights."),
    Arg("bias", OptionalTensor, None, doc="Added to every row, (n,)."),
)
