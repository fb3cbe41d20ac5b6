"""Schemas of operators that repeat, reorder, frame or mask the elements along axes."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Choice, Int, IntPairs, IntTuple, Number, Optional, Tensor

_x = Arg("x", Tensor, doc="Input.")

repeat = Schema(
    "repeat",
    _x,
    Arg("repeats", Int, doc="How often each element occurs."),
    Arg("axis", Optional(Int), None, doc="Along which axis; None to repeat the elements of the flattened input."),
)
tile = Schema(
    "tile",
    _x,
    Arg("reps", IntTuple, doc="How often x occurs along each axis; aligned with the axes of x at the right."),
)
flip = Schema("flip", _x, Arg("axis", Optional(IntTuple), None, doc="Axes to reverse; None for all of them."))
roll = Schema(
    "roll",
    _x,
    Arg("shift", IntTuple, doc="By how many places elements move towards the end of each axis; they re-enter."),
    Arg("axis", IntTuple, doc="The axis of each shift; distinct."),
)
pad = Schema(
    "pad",
    _x,
    Arg("pad_width", IntPairs, doc="Numbers of elements (before, after) to add along each axis, first axis first."),
    Arg("pad_value", Number, 0.0, doc='What they are, in mode "constant".'),
    Arg(
        "mode",
        Choice("constant", "edge", "reflect", "symmetric"),
        "constant",
        doc="One value, the element at the edge, or those mirrored at the edge element or behind it.",
    ),
)
triangle = Schema(
    "triangle",
    Arg("x", Tensor, doc="Input of rank 2 or more: matrices in the last two axes."),
    Arg("k", Int, 0, doc="The diagonal that counts: 0 the main one, positive ones above it."),
)
