"""Schemas of elementwise operators of two or three operands."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Scalar, Tensor

binary = Schema(
    "binary",
    Arg("x1", Scalar, doc="First operand: a tensor or a number."),
    Arg("x2", Scalar, doc="Second operand: a tensor or a number; shapes broadcast, dtypes promote."),
)
extremum_dx = Schema(
    "extremum_dx",
    Arg("x1", Scalar, doc="The operand whose gradient is computed."),
    Arg("x2", Scalar, doc="The other operand."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
)
where = Schema(
    "where",
    Arg("condition", Tensor, doc="Condition, bool."),
    Arg("x", Scalar, doc="Values where the condition is true: a tensor or a number."),
    Arg("y", Scalar, doc="Values where it is false: a tensor or a number; all three shapes broadcast."),
)
