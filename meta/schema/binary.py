"""Schemas of elementwise operators of two tensors."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Scalar

binary = Schema(
    "binary",
    Arg("x1", Scalar, doc="First operand: a tensor or a number."),
    Arg("x2", Scalar, doc="Second operand: a tensor or a number; shapes broadcast, dtypes promote."),
)
