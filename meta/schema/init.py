"""Schemas of operators that create tensors."""

from meta.schema._dsl import (
    Arg,
    Device,
    DType,
    FillValue,
    Int,
    IntTuple,
    Number,
    NumberOrSize,
    Optional,
    Schema,
    Tensor,
)

_shape = Arg("shape", IntTuple, doc="Shape of the result.")
_dtype = Arg("dtype", DType, "float32", doc="Dtype of the result.")
_device = Arg("device", Device, "cpu", doc="Device of the result.")
_fill_value = Arg("fill_value", FillValue, doc="Value of every element.")
_like = Arg("x", Tensor, doc="Tensor that determines shape and device of the result.")
_like_dtype = Arg("dtype", Optional(DType), None, doc="Dtype of the result; None for the dtype of x.")

init = Schema("init", _shape, _dtype, _device)
full = Schema("full", _shape, _fill_value, _dtype, _device)
like = Schema("like", _like, _like_dtype)
full_like = Schema("full_like", _like, _fill_value, _like_dtype)
arange = Schema(
    "arange",
    Arg("start", NumberOrSize, doc="First value; without `stop`, the end, and the first value is 0."),
    Arg("stop", Optional(NumberOrSize), None, doc="End of the range, not included."),
    Arg("step", Number, 1, doc="Difference of consecutive values, not zero."),
    Arg(
        "dtype", Optional(DType), None, doc="Dtype of the result; None for int64, or float32 when a number is a float."
    ),
    _device,
)
linspace = Schema(
    "linspace",
    Arg("start", Number, doc="First value."),
    Arg("stop", Number, doc="Last value, included."),
    Arg("num", Int, doc="Number of values."),
    _dtype,
    _device,
)
eye = Schema(
    "eye",
    Arg("n", Int, doc="Number of rows."),
    Arg("m", Optional(Int), None, doc="Number of columns; None for as many as rows."),
    _dtype,
    _device,
)
one_hot = Schema(
    "one_hot",
    Arg("indices", Tensor, doc="Positions of the ones, of an integer dtype; out-of-range positions give zeros only."),
    Arg("depth", Int, doc="Size of the new axis."),
    _dtype,
    Arg("axis", Int, -1, doc="Position of the new axis in the result."),
)
