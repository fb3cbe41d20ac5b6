"""Schemas of operators that change shape, type or place."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Device, DType, Int, IntTuple, Tensor, TensorList

x_only = Schema("x_only", Arg("x", Tensor, doc="Input of any shape."))
cast = Schema("cast", Arg("x", Tensor, doc="Input."), Arg("dtype", DType, doc="Dtype of the result."))
reshape = Schema(
    "reshape",
    Arg("x", Tensor, doc="Input."),
    Arg("shape", IntTuple, doc="New shape; one size may be -1, and is then worked out."),
)
broadcast_to = Schema(
    "broadcast_to", Arg("x", Tensor, doc="Input."), Arg("shape", IntTuple, doc="A shape that x broadcasts to.")
)
concatenate = Schema(
    "concatenate",
    Arg("xs", TensorList, doc="Tensors whose shapes agree except along `axis`."),
    Arg("axis", Int, 0, doc="The axis to join."),
)
device_copy = Schema(
    "device_copy", Arg("x", Tensor, doc="Input."), Arg("device", Device, doc="Where the result is.")
)
strided_slice = Schema(
    "strided_slice",
    Arg("x", Tensor, doc="Input."),
    Arg("begin", IntTuple, doc="First index of each axis; negative ones count from the end."),
    Arg("end", IntTuple, doc="Index past the last of each axis; clipped to the size."),
    Arg("strides", IntTuple, (), doc="Step of each axis, not zero; () for all ones."),
)
strided_slice_dx = Schema(
    "strided_slice_dx",
    Arg("dy", Tensor, doc="Gradient of the result."),
    Arg("shape", IntTuple, doc="Shape of the forward input."),
    Arg("begin", IntTuple, doc="As in the forward operator."),
    Arg("end", IntTuple, doc="As in the forward operator."),
    Arg("strides", IntTuple, (), doc="As in the forward operator."),
)
