"""Activations, softmax and their gradients."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import in_dtype

ROWS: Rows = {
    "celu": "celu", "gelu": "gelu", "leaky_relu": direct("leaky_relu", negative_slope="alpha"),
    "hardshrink": "hardshrink", "hardsigmoid": "hardsigmoid", "hardswish": "hardswish", "log_sigmoid": "logsigmoid",
    "glu": "glu", "mish": "mish", "prelu": "prelu", "relu6": "relu6", "selu": "selu", "softshrink": "softshrink",
    "relu": "relu", "silu": "silu", "threshold": "threshold",
}  # fmt: skip


@into(ROWS)
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    if min_val > max_val:
        raise ArgumentError("hardtanh", f"min_val is {min_val}, max_val {max_val}", "min_val up to max_val")
    return meta.hardtanh(self, min_val, max_val)


@into(ROWS)
def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return meta.elu(self, alpha)
    return meta.where(meta.greater(self, 0), self * scale, meta.expm1(self * input_scale) * (alpha * scale))


@into(ROWS)
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    return meta.softplus(self, beta, threshold)


@into(ROWS, "softmax", "special_softmax")
def softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return meta.softmax(in_dtype(self, dtype), dim)


@into(ROWS, "log_softmax", "special_log_softmax")
def log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return meta.log_softmax(in_dtype(self, dtype), dim)


@into(ROWS)
def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return meta.softmax(in_dtype(self, "float32" if half_to_float else None), dim)


@into(ROWS)
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return meta.log_softmax(in_dtype(self, "float32" if half_to_float else None), dim)


@into(ROWS)
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return in_dtype(meta.softmax_dx(output, grad_output, dim), input_dtype)


@into(ROWS)
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return in_dtype(meta.log_softmax_dx(output, grad_output, dim), input_dtype)


@into(ROWS)
def _prelu_kernel(self: Any, weight: Any) -> Any:
    return meta.where(meta.greater(self, 0), self, self * weight)


@into(ROWS)
def log_sigmoid_forward(self: Any) -> Any:
    """The result, and exp(-|x|)."""
    return meta.logsigmoid(self), meta.exp(meta.negative(meta.abs(self)))


@into(ROWS)
def rrelu(self: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False) -> Any:
    return meta.rrelu(self, meta.random.next_key(self.device) if training else None, lower, upper)
