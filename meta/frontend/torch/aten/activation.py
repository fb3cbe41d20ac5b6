"""Activations, softmax and their gradients."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import Number
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows, same
from meta.frontend.torch.aten._values import in_dtype

rows({
    **same("celu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "mish", "prelu", "relu", "relu6", "selu",
           "silu", "softshrink", "threshold"),
    "leaky_relu": direct("leaky_relu", negative_slope="alpha"), "log_sigmoid": "logsigmoid",
    "softplus": lambda self, beta=1, threshold=20: meta.softplus(self, beta, threshold),
    **dict.fromkeys(("softmax", "special_softmax"),
        lambda self, dim, dtype=None: meta.softmax(in_dtype(self, dtype), dim)),
    **dict.fromkeys(("log_softmax", "special_log_softmax"),
        lambda self, dim, dtype=None: meta.log_softmax(in_dtype(self, dtype), dim)),
    "_softmax": lambda self, dim, half_to_float:
        meta.softmax(in_dtype(self, "float32" if half_to_float else None), dim),
    "_log_softmax": lambda self, dim, half_to_float:
        meta.log_softmax(in_dtype(self, "float32" if half_to_float else None), dim),
    "_softmax_backward_data": lambda grad_output, output, dim, input_dtype:
        in_dtype(meta.softmax_dx(output, grad_output, dim), input_dtype),
    "_log_softmax_backward_data": lambda grad_output, output, dim, input_dtype:
        in_dtype(meta.log_softmax_dx(output, grad_output, dim), input_dtype),
    "_prelu_kernel": lambda self, weight: meta.where(meta.greater(self, 0), self, self * weight),
    # The result, and exp(-|x|).
    "log_sigmoid_forward": lambda self: (meta.logsigmoid(self), meta.exp(meta.negative(meta.abs(self)))),
    "rrelu": lambda self, lower=1 / 8, upper=1 / 3, training=False:
        meta.rrelu(self, meta.random.next_key(self.device) if training else None, lower, upper),
})  # fmt: skip


@row()
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    if min_val > max_val:
        raise ArgumentError("hardtanh", f"min_val is {min_val}, max_val {max_val}", "min_val up to max_val")
    return meta.hardtanh(self, min_val, max_val)


@row()
def elu(self: Any, alpha: Any = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return meta.elu(self, alpha)
    return meta.where(meta.greater(self, 0), self * scale, meta.expm1(self * input_scale) * (alpha * scale))
