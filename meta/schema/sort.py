"""Schemas of sorting operators."""

from meta.schema._dsl import Arg, Bool, Int, Schema, Tensor

_x = Arg("x", Tensor, doc="Input of any shape.")
_axis = Arg("axis", Int, -1, doc="Axis to sort along.")

sort = Schema("sort", _x, _axis, Arg("descending", Bool, False, doc="Sort from the largest to the smallest."))
binary_search = Schema(
    "binary_search",
    Arg("sequence", Tensor, doc="Ascending rows along the last axis; a vector serves values of any shape."),
    Arg("values", Tensor, doc="Values to find, of the dtype of `sequence` and its leading axes."),
    Arg("right", Bool, False, doc="Return the position after equal elements; else the position of the first of them."),
)
rank_positions = Schema(
    "rank_positions",
    _x,
    Arg("ranks", Tensor, doc="Ranks from 0 on, int64, of the shape of x except for the axis; clipped to the axis."),
    Arg("axis", Int, -1, doc="Axis along which elements are ranked."),
)
topk = Schema(
    "topk",
    _x,
    Arg("k", Int, doc="Number of elements to return; at most the size of the axis."),
    _axis,
    Arg("largest", Bool, True, doc="Return the largest elements, descending; else the smallest, ascending."),
)
