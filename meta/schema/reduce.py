"""Schemas of reductions."""

from meta.schema._dsl import Arg, Bool, Int, IntTuple, Number, Optional, Schema, Tensor

_x = Arg("x", Tensor, doc="Input of any shape.")
_axis = Arg("axis", Optional(IntTuple), None, doc="Axis or axes to reduce; None for all of them.")
_keepdims = Arg("keepdims", Bool, False, doc="Keep reduced axes with size 1.")
_correction = Arg("correction", Number, 1,
                  doc="Subtracted from the number of elements: 1 for an unbiased estimate.")  # fmt: skip

reduce = Schema("reduce", _x, _axis, _keepdims)
arg_reduce = Schema(
    "arg_reduce", _x, Arg("axis", Optional(Int), None, doc="Axis to search; None for the flattened input."), _keepdims
)
moment = Schema("moment", _x, _axis, _correction, _keepdims)
scan = Schema(
    "scan",
    _x,
    Arg("axis", Int, doc="Axis to scan."),
    Arg("exclusive", Bool, False, doc="Exclude each element from its own result."),
    Arg("reverse", Bool, False, doc="Scan from the end."),
)
running = Schema("running", _x, Arg("axis", Int, doc="Axis to scan."))
sum_to = Schema(
    "sum_to",
    Arg("x", Tensor, doc="Input."),
    Arg("shape", IntTuple, doc="A shape that broadcasts to the shape of x."),
)
extremum_dx = Schema(
    "reduced_extremum_dx",
    Arg("x", Tensor, doc="Input of the forward operator."),
    Arg("y", Tensor, doc="Result of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
    _axis,
    _keepdims,
)
prod_dx = Schema(
    "prod_dx",
    Arg("x", Tensor, doc="Input of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
    _axis,
    _keepdims,
)
