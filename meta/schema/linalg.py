"""Schemas of matrix products."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Bool, Tensor

matmul = Schema(
    "matmul",
    Arg("x1", Tensor, doc="Left operand, (..., m, k), or (..., k, m) when transposed."),
    Arg("x2", Tensor, doc="Right operand, (..., k, n), or (..., n, k) when transposed; batch axes broadcast."),
    Arg("transpose_a", Bool, False, doc="Swap the last two axes of x1 first."),
    Arg("transpose_b", Bool, False, doc="Swap the last two axes of x2 first."),
)
