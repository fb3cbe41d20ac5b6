"""Schemas of operators that repeat, reorder, pad or mask elements along axes."""

from meta.schema._dsl import Arg, Choice, Int, IntPairs, IntTuple, Number, Optional, Schema, Tensor

_x = Arg("x", Tensor, doc="Input.")

repeat = Schema(
    "repeat",
    _x,
    Arg("repeats", Int, doc="Number of copies of each element."),
    Arg("axis", Optional(Int), None, doc="Axis to repeat along; None for the flattened input."),
)
tile = Schema(
    "tile",
    _x,
    Arg("reps", IntTuple, doc="Number of copies of x along each axis; aligned with the last axes of x."),
)
flip = Schema("flip", _x, Arg("axis", Optional(IntTuple), None, doc="Axes to reverse; None for all of them."))
roll = Schema(
    "roll",
    _x,
    Arg("shift", IntTuple, doc="Number of positions by which elements move towards the end of each axis, cyclically."),
    Arg("axis", IntTuple, doc="The axis of each shift; distinct."),
)
pad = Schema(
    "pad",
    _x,
    Arg(
        "pad_width",
        IntPairs,
        doc="Numbers of elements (before, after) to add along each axis, first axis first; "
        "negative numbers remove elements.",
    ),
    Arg("pad_value", Number, 0.0, doc='Value of the added elements in mode "constant".'),
    Arg(
        "mode",
        Choice("constant", "edge", "reflect", "symmetric", "wrap"),
        "constant",
        doc="Added elements: `pad_value`, the edge element, a mirror image without or with the edge element, or the "
        "elements from the opposite end.",
    ),
)
triangle = Schema(
    "triangle",
    Arg("x", Tensor, doc="Input of rank 2 or more: matrices in the last two axes."),
    Arg("k", Int, 0, doc="Index of the diagonal: 0 for the main one, positive above it."),
)
