"""Schemas of elementwise operators of one tensor and of their backward operators."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Tensor

unary = Schema("unary", Arg("x", Tensor, doc="Input of any shape."))
unary_dx_y = Schema(
    "unary_dx_y",
    Arg("y", Tensor, doc="Result of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
)
unary_dx_x = Schema(
    "unary_dx_x",
    Arg("x", Tensor, doc="Input of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
)
