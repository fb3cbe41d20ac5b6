"""Schemas of operators that create tensors."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Device, DType, IntTuple

init = Schema(
    "init",
    Arg("shape", IntTuple, doc="Shape of the result."),
    Arg("dtype", DType, "float32", doc="Dtype of the result."),
    Arg("device", Device, "cpu", doc="Where the result is."),
)
