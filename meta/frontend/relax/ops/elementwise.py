"""Elementwise operators."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import ALL, is_float
from meta.frontend.relax.ops._table import number, row, rows, shared, tensor
from meta.frontend.relay.convert.call import OpCall, operands
from meta.frontend.relay.ops.unary import clipped
from meta.functional._checks import as_dtype

shared(
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "ceil", "cos", "cosh", "divide", "equal", "erf", "exp", "floor", "floor_divide", "floor_mod",
    "greater", "greater_equal", "isfinite", "isinf", "isnan", "left_shift", "less", "less_equal", "log", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "negative", "nn.prelu",
    "nn.relu", "not_equal", "power", "right_shift", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "trunc", "where",
)  # fmt: skip
rows({
    "atan2": lambda call: meta.atan2(*operands(call)),
    "clip": lambda call: clipped(tensor(call, 0), number(call, 1, "min"), number(call, 2, "max")),
    "grad.no_grad": lambda call: meta.stop_gradient(tensor(call, 0)),
    "log_add_exp": lambda call: meta.logaddexp(*operands(call)),
    "nn.gelu": lambda call: meta.gelu(tensor(call, 0), "none"),
    "nn.gelu_tanh": lambda call: meta.gelu(tensor(call, 0), "tanh"),
    "nn.leakyrelu": lambda call: meta.leaky_relu(tensor(call, 0), call.float("alpha")),
    "nn.selu": lambda call: meta.selu(tensor(call, 0)),
    "nn.silu": lambda call: meta.silu(tensor(call, 0)),
    "nn.softplus": lambda call: meta.softplus(tensor(call, 0), call.float("beta", 1.0), call.float("threshold", 20.0)),
})  # fmt: skip


@row("ewise_fma")
def ewise_fma(call: OpCall) -> Any:
    """x1 * x2 + x3."""
    x1, x2, x3 = call.tensors(3)
    return meta.add(meta.multiply(x1, x2), x3)


@row("astype", "wrap_param")
def astype(call: OpCall) -> Any:
    dtype = call.text("dtype")
    if dtype not in ALL:
        call.refuse(f"the dtype {dtype}", "a dtype of meta")
    return as_dtype(tensor(call, 0), dtype)


@row("round")
def round_(call: OpCall) -> Any:
    """Halves to even, as ONNX and torch round, whose models Relax's importers convert to this operator. TVM's code for
    CPUs rounds them away from zero."""
    x = tensor(call, 0)
    return meta.round(x) if is_float(x.dtype) else x


@row("to_vdevice", "hint_on_device", "builtin.stop_lift_params", "grad.start_checkpoint", "grad.end_checkpoint")
def identity(call: OpCall) -> Any:
    """Devices in programs are ignored: the program runs on the device that it is compiled for."""
    for name in call.attrs:
        call.get(name)
    return tensor(call, 0)
