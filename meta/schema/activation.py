"""Schemas of activations."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Float, Number, Tensor

_x = Arg("x", Tensor, doc="Input of any shape.")

hardtanh = Schema(
    "hardtanh",
    _x,
    Arg("min", Number, -1.0, doc="Lower bound."),
    Arg("max", Number, 1.0, doc="Upper bound."),
)
shrink = Schema("shrink", _x, Arg("lambd", Float, 0.5, doc="Elements of at most this size give 0."))
