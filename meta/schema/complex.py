"""Schemas of operators on complex numbers and their parts."""

from meta.schema._dsl import Arg, Schema, Tensor

parts = Schema(
    "parts",
    Arg("re", Tensor, doc="Real parts, float32 or float64."),
    Arg("im", Tensor, doc="Imaginary parts, of the same dtype; shapes broadcast."),
)
polar = Schema(
    "polar",
    Arg("radius", Tensor, doc="Absolute values, float32 or float64."),
    Arg("phase", Tensor, doc="Angles in radians, of the same dtype; shapes broadcast."),
)
