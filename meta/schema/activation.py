"""Schemas of activations."""

from meta.schema._dsl import Arg, Float, Number, Schema, Tensor
from meta.schema.unary import dy, forward_x

_x = Arg("x", Tensor, doc="Input of any shape.")
_min = Arg("min", Number, -1.0, doc="Lower bound.")
_max = Arg("max", Number, 1.0, doc="Upper bound.")

hardtanh = Schema("hardtanh", _x, _min, _max)
hardtanh_dx = Schema("hardtanh_dx", forward_x, dy, _min, _max)
shrink = Schema("shrink", _x, Arg("lambd", Float, 0.5, doc="Elements of at most this size give 0."))
