"""Schemas of the gamma function's relatives."""

from meta.schema._dsl import Arg, Int, Schema, Tensor

polygamma = Schema(
    "polygamma",
    Arg("n", Int, doc="Order of the derivative, 0 to 30."),
    Arg("x", Tensor, doc="Input of any shape."),
)
