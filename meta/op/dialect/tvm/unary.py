"""TE computes of elementwise operators of one tensor."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.tvm._adapter import te, tirx, topi
from meta.op.dialect.tvm._register import compute

for _name, _function in {"exp": topi.exp, "negative": topi.negative, "relu": topi.nn.relu, "tanh": topi.tanh}.items():
    compute(_name)(_function)


@compute("relu_dx")
def relu_dx(y: Any, dy: Any) -> Any:
    zero = tirx.const(0, dy.dtype)
    return te.compute(y.shape, lambda *i: tirx.Select(y(*i) > tirx.const(0, y.dtype), dy(*i), zero), "relu_dx")


@compute("tanh_dx")
def tanh_dx(y: Any, dy: Any) -> Any:
    return te.compute(y.shape, lambda *i: dy(*i) * (tirx.const(1, y.dtype) - y(*i) * y(*i)), "tanh_dx")
