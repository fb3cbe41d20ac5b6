"""Schemas of operators that change shape, dtype or device."""

from meta.schema._dsl import Arg, Device, DType, Int, IntTuple, Optional, Schema, Sections, Tensor, TensorList

_x = Arg("x", Tensor, doc="Input of any shape.")
_like = Arg("like", Tensor, doc="Tensor that determines shape or dtype of the result; its values are not used.")

x_only = Schema("x_only", _x)
x_like = Schema("x_like", _x, _like)
straight_through = Schema(
    "straight_through", _x, Arg("source", Tensor, doc="Tensor of the type of x; its values are not used.")
)
cast = Schema("cast", _x, Arg("dtype", DType, doc="Dtype of the result."))
bitcast = Schema("bitcast", _x, Arg("dtype", DType, doc="Dtype of the result, as wide as the dtype of x."))
device_copy = Schema("device_copy", _x, Arg("device", Device, doc="Device of the result."))
reshape = Schema("reshape", _x, Arg("shape", IntTuple, doc="New shape; one size may be -1 and is then inferred."))
broadcast_to = Schema("broadcast_to", _x, Arg("shape", IntTuple, doc="A shape that x broadcasts to."))
expand_dims = Schema(
    "expand_dims", _x, Arg("axis", IntTuple, doc="Positions of the new axes of size 1 in the result; distinct.")
)
squeeze = Schema(
    "squeeze",
    _x,
    Arg("axis", Optional(IntTuple), None, doc="Axes of size 1 to remove; None for all of them."),
)
transpose = Schema(
    "transpose",
    _x,
    Arg("axes", Optional(IntTuple), None, doc="For each axis of the result, the axis of x; None to reverse them."),
)
swap_axis = Schema(
    "swap_axis",
    _x,
    Arg("axis1", Int, doc="First axis."),
    Arg("axis2", Int, doc="Second axis."),
)
moveaxis = Schema(
    "moveaxis",
    _x,
    Arg("source", IntTuple, doc="Axes to move; distinct."),
    Arg("destination", IntTuple, doc="Their positions in the result; distinct."),
)
concatenate = Schema(
    "concatenate",
    Arg("xs", TensorList, doc="Tensors whose shapes agree except along `axis`."),
    Arg("axis", Int, 0, doc="Axis to concatenate along."),
)
stack = Schema(
    "stack",
    Arg("xs", TensorList, doc="Tensors of one shape."),
    Arg("axis", Int, 0, doc="Position of the new axis in the result."),
)
split = Schema(
    "split",
    _x,
    Arg("indices_or_sections", Sections, doc="Number of equal sections, or ascending positions to split at."),
    Arg("axis", Int, 0, doc="Axis to split."),
)
