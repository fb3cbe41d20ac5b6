"""Schemas of reductions."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Bool, IntTuple, Optional, Tensor

reduce = Schema(
    "reduce",
    Arg("x", Tensor, doc="Input of any shape."),
    Arg("axis", Optional(IntTuple), None, doc="Axis or axes to reduce; None for all of them."),
    Arg("keepdims", Bool, False, doc="Keep reduced axes with size 1."),
)
sum_to = Schema(
    "sum_to",
    Arg("x", Tensor, doc="Input."),
    Arg("shape", IntTuple, doc="A shape that broadcasts to that of x."),
)
