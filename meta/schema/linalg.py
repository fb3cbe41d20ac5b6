"""Schemas of matrix products."""

from meta.schema._dsl import Arg, Bool, OptionalTensor, Schema, Tensor

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
