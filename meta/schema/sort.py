"""Schemas of operators that put the elements along an axis in order."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Bool, Int, Tensor

_x = Arg("x", Tensor, doc="Input of any shape.")
_axis = Arg("axis", Int, -1, doc="The axis along which to order.")

sort = Schema("sort", _x, _axis, Arg("descending", Bool, False, doc="The largest first."))
topk = Schema(
    "topk",
    _x,
    Arg("k", Int, doc="How many elements to keep; at most the size of the axis."),
    _axis,
    Arg("largest", Bool, True, doc="The largest elements, the largest first; else the smallest, the smallest first."),
)
