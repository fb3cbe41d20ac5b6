"""Schemas of neural-network operators."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Int, Tensor

softmax = Schema(
    "softmax",
    Arg("x", Tensor, doc="Input of any shape, floating."),
    Arg("axis", Int, -1, doc="The axis that sums to one."),
)
softmax_dx = Schema(
    "softmax_dx",
    Arg("y", Tensor, doc="Result of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
    Arg("axis", Int, -1, doc="The axis of the forward operator."),
)
