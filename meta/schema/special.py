"""Schemas of special functions."""

from meta.schema._dsl import Arg, Int, Schema, Tensor

erfcx_integral = Schema(
    "erfcx_integral",
    Arg("n", Int, doc="How often erfc is integrated, 0 to 30."),
    Arg("x", Tensor, doc="Input of any shape."),
)
