"""Elementwise operators of one tensor, and identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import int_range, is_float
from meta.frontend.relay.convert.call import OpCall, converter, rows
from meta.frontend.relay.convert.type_mapping import dtype_of


@converter("ceil", "floor", "round", "trunc")
def rounding(call: OpCall) -> Any:
    """Integers stay."""
    (x,) = call.tensors(1)
    function: Callable[[Any], Any] = {"ceil": meta.ceil, "floor": meta.floor, "round": rounded, "trunc": meta.trunc}[
        call.name
    ]
    return function(x) if is_float(x.dtype) else x


def rounded(x: Tensor) -> Any:
    """The nearest integer, halves away from zero (`llvm.round`); meta's `round` rounds halves to even."""
    whole = meta.trunc(x)
    return meta.where(meta.greater_equal(meta.abs(meta.subtract(x, whole)), 0.5), meta.add(whole, meta.sign(x)), whole)


@converter("debug", "annotation.stop_fusion", "annotation.cast_hint", "annotation.checkpoint",
           "annotation.compiler_begin", "annotation.compiler_end")  # fmt: skip
def identity(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    for name in ("dtype", "compiler"):  # a hint, and the name of another compiler
        call.get(name)
    return x


@converter("cast")
def cast(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    y = meta.cast(x, dtype_of(call.text("dtype"), call.place))
    if x.atom in call.shapes:
        call.shapes[y.atom] = call.shapes[x.atom]
    return y


@converter("reinterpret")
def reinterpret(call: OpCall) -> Any:
    """The same bits in another dtype."""
    (x,) = call.tensors(1)
    dtype = dtype_of(call.text("dtype"), call.place)
    return x if dtype == x.dtype else meta.bitcast(x, dtype)


@converter("cast_like")
def cast_like(call: OpCall) -> Any:
    x, like = call.tensors(2)
    return meta.cast(x, like.dtype)


@converter("clip")
def clip(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    low, high = call.float("a_min"), call.float("a_max")
    return clipped(x, low, high)


def clipped(x: Tensor, low: float, high: float) -> Any:
    """x between two bounds, which are rounded towards zero and limited to its range if it is an integer tensor."""
    if is_float(x.dtype):
        return meta.clip(x, low, high)
    lowest, highest = int_range(x.dtype)
    return meta.clip(x, int(max(low, lowest)), int(min(high, highest)))


@converter("bitwise_not")
def bitwise_not(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    return meta.logical_not(x) if x.dtype == "bool" else meta.bitwise_not(x)


rows({
    "nn.leaky_relu": lambda call: meta.leaky_relu(call.argument, call.float("alpha", 0.25)),
})  # fmt: skip


@converter("nn.prelu")
def prelu(call: OpCall) -> Any:
    """x where positive, elsewhere x times the slope of its channel."""
    x, alpha = call.tensors(2)
    axis = call.int("axis", 1) % x.ndim
    shape = tuple(d if i == axis else 1 for i, d in enumerate(x.shape))
    slope = meta.reshape(meta.broadcast_to(alpha, (x.shape[axis],)) if alpha.size == 1 else alpha, shape)
    return meta.where(meta.greater(x, 0), x, meta.multiply(x, slope))


@converter("device_copy", "on_device")
def device_copy(call: OpCall) -> Any:
    """Devices in Relay programs are ignored: the program runs on the device it is compiled for."""
    for name in ("src_virtual_device", "dst_virtual_device", "virtual_device", "constrain_result", "constrain_body",
                 "src_dev_type", "dst_dev_type"):  # fmt: skip
        call.get(name)
    return call.tensors(1)[0]
