"""Declarations of reductions."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import reduce


@declare("sum", schema=reduce.reduce, pattern="reduce", amp="never", method=True, aten="sum.dim_IntList", relay="sum",
         onnx="ReduceSum")  # fmt: skip
def sum(x: TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> TensorType:  # noqa: A001
    """Sum of the elements along axes; integers and booleans are summed as int64."""
    dtype = x.dtype if dtypes.is_float(x.dtype) else "int64"
    return x.with_shape(rules.reduced_shape("sum", x.shape, axis, keepdims)).with_dtype(dtype)


@declare("sum_to", schema=reduce.sum_to, pattern="reduce", amp="never")
def sum_to(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """Sum x down to a shape that broadcasts to its own: the gradient of broadcasting."""
    full = rules.broadcast_shapes("sum_to", x.shape, shape)
    rules.require("sum_to", rules.same_shape(full, x.shape), f"{rules.show(shape)} does not broadcast to {rules.show(x.shape)}")
    return x.with_shape(shape)
