"""Declarations of neural-network operators."""

from __future__ import annotations

from meta.ir.type import TensorType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import nn


@declare("softmax", schema=nn.softmax, pattern="softmax", amp="never", method=True, aten="softmax.int",
         relay="nn.softmax", onnx="Softmax")  # fmt: skip
def softmax(x: TensorType, axis: int) -> TensorType:
    """exp(x) / sum(exp(x)) along an axis, computed without overflow."""
    rules.require_float("softmax", "x", x)
    rules.axis_index("softmax", axis, x.ndim)
    return x


@declare("softmax_dx", schema=nn.softmax_dx, pattern="softmax", amp="never")
def softmax_dx(y: TensorType, dy: TensorType, axis: int) -> TensorType:
    """Gradient of softmax: y * (dy - sum(y * dy, axis))."""
    rules.require_same_shape("softmax_dx", y=y, dy=dy)
    rules.require_same_dtype("softmax_dx", y=y, dy=dy)
    rules.axis_index("softmax_dx", axis, y.ndim)
    return y
