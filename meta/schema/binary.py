"""Schemas of elementwise operators of two or three operands."""

from meta.schema._dsl import Arg, Number, Scalar, Schema, Tensor

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
hypot_dx = Schema(
    "hypot_dx",
    Arg("x1", Scalar, doc="The operand whose gradient is computed."),
    Arg("x2", Scalar, doc="The other operand."),
    Arg("y", Tensor, doc="The result of hypot."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
)
_x1 = Arg("x1", Scalar, doc="First factor: a tensor or a number; shapes broadcast, dtypes promote.")
addcmul = Schema(
    "addcmul",
    Arg("x", Tensor, doc="The tensor that the product is added to."),
    _x1,
    Arg("x2", Scalar, doc="Second factor: a tensor or a number."),
    Arg("value", Number, 1.0, doc="Factor of the product; an integer for integers."),
)
addcdiv = Schema(
    "addcdiv",
    Arg("x", Tensor, doc="The tensor that the quotient is added to."),
    Arg("x1", Scalar, doc="Dividend: a tensor or a number; shapes broadcast, dtypes promote."),
    Arg("x2", Scalar, doc="Divisor: a tensor or a number."),
    Arg("value", Number, 1.0, doc="Factor of the quotient."),
)
lerp = Schema(
    "lerp",
    Arg("x1", Tensor, doc="Result for the weight 0."),
    Arg("x2", Scalar, doc="Result for the weight 1: a tensor or a number; shapes broadcast, dtypes promote."),
    Arg("weight", Scalar, doc="Weight of x2: a tensor or a number."),
)
where = Schema(
    "where",
    Arg("condition", Tensor, doc="Condition, bool."),
    Arg("x", Scalar, doc="Values where the condition is true: a tensor or a number."),
    Arg("y", Scalar, doc="Values where it is false: a tensor or a number; all three shapes broadcast."),
)
