"""Elementwise operators of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from meta import dtype as dtypes
from meta.frontend.onnx.export_ops._table import OnnxSite, row
from meta.frontend.rows import Function

_FLOATING: Final = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "cos": "Cos",
    "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "sigmoid": "Sigmoid", "sin": "Sin", "sinh": "Sinh",
    "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "reciprocal": "Reciprocal", "softsign": "Softsign", "mish": "Mish",
    "selu": "Selu", "hardswish": "HardSwish", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
_ROUNDING: Final = {"ceil": "Ceil", "floor": "Floor"}
_SAME: Final = {"abs": "Abs", "negative": "Neg", "sign": "Sign", "relu": "Relu"}


def _composed(*names: str) -> Callable[[Function], Function]:
    """A row for a floating tensor, and for integers, which are cast, where the operator makes floats or flags of
    them."""

    def enter(function: Function) -> Function:
        def convert(call: OnnxSite, x: str, *rest: Any) -> Any:
            source = call.types[0].dtype
            if dtypes.is_float(source):
                return function(call, x, *rest)
            if call.dtype != "bool" and not dtypes.is_float(call.dtype):
                return None
            return function(call, call.cast(x, source, "float32" if call.dtype == "bool" else call.dtype), *rest)

        row(*names)(convert)
        return function

    return enter


for _name, _kind in _FLOATING.items():
    _composed(_name)(lambda call, x, kind=_kind: call.node(kind, x))
for _name, _kind in _ROUNDING.items():
    row(_name)(lambda call, x, kind=_kind: call.node(kind, x) if call.is_float else call.node("Identity", x))
for _name, _kind in _SAME.items():
    row(_name)(lambda call, x, kind=_kind: None if call.dtype == "bool" else call.node(kind, x))


@row("copy", "stop_gradient", "device_copy", "real", "conj")
def copy(call: OnnxSite, x: str, *_: Any) -> str:
    return call.node("Identity", x)


@row("square")
def square(call: OnnxSite, x: str) -> str:
    return call.node("Mul", x, x)


@_composed("rsqrt")
def rsqrt(call: OnnxSite, x: str) -> str:
    return call.node("Reciprocal", call.node("Sqrt", x))


@_composed("silu")
def silu(call: OnnxSite, x: str) -> str:
    return call.node("Mul", x, call.node("Sigmoid", x))


@_composed("logsigmoid")
def logsigmoid(call: OnnxSite, x: str) -> str:
    return call.node("Neg", call.node("Softplus", call.node("Neg", x)))


@_composed("hardsigmoid")
def hardsigmoid(call: OnnxSite, x: str) -> str:
    return call.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@_composed("tanhshrink")
def tanhshrink(call: OnnxSite, x: str) -> str:
    return call.node("Sub", x, call.node("Tanh", x))


@_composed("exp2")
def exp2(call: OnnxSite, x: str) -> str:
    return call.node("Pow", call.number(2.0), x)


@_composed("expm1")
def expm1(call: OnnxSite, x: str) -> str:
    return call.node("Sub", call.node("Exp", x), call.number(1.0))


@_composed("log1p")
def log1p(call: OnnxSite, x: str) -> str:
    return call.node("Log", call.node("Add", x, call.number(1.0)))


@_composed("log2")
def log2(call: OnnxSite, x: str) -> str:
    return call.node("Mul", call.node("Log", x), call.number(1 / math.log(2)))


@_composed("log10")
def log10(call: OnnxSite, x: str) -> str:
    return call.node("Mul", call.node("Log", x), call.number(1 / math.log(10)))


@_composed("erfc")
def erfc(call: OnnxSite, x: str) -> str:
    return call.node("Sub", call.number(1.0), call.node("Erf", x))


@_composed("deg2rad")
def deg2rad(call: OnnxSite, x: str) -> str:
    return call.node("Mul", x, call.number(math.pi / 180))


@_composed("rad2deg")
def rad2deg(call: OnnxSite, x: str) -> str:
    return call.node("Mul", x, call.number(180 / math.pi))


@row("trunc")
def trunc(call: OnnxSite, x: str) -> str:
    if not call.is_float:
        return call.node("Identity", x)
    return call.node("Mul", call.node("Sign", x), call.node("Floor", call.node("Abs", x)))


@_composed("frac")
def frac(call: OnnxSite, x: str) -> str:
    return call.node("Sub", x, trunc(call, x))


@_composed("isfinite")
def isfinite(call: OnnxSite, x: str) -> str:
    return call.node("Not", call.node("Or", call.node("IsNaN", x), call.node("IsInf", x)))


@_composed("isposinf")
def isposinf(call: OnnxSite, x: str) -> str:
    return call.node("IsInf", x, detect_negative=0)


@_composed("isneginf")
def isneginf(call: OnnxSite, x: str) -> str:
    return call.node("IsInf", x, detect_positive=0)


@row("logical_not")
def logical_not(call: OnnxSite, x: str) -> str:
    return call.node("Not", call.cast(x, call.types[0].dtype, "bool"))


@row("bitwise_not")
def bitwise_not(call: OnnxSite, x: str) -> str:
    return call.node("Not" if call.dtype == "bool" else "BitwiseNot", x)


@row("round")
def round_(call: OnnxSite, x: str, decimals: int) -> str | None:
    if not call.is_float:
        return call.node("Identity", x)
    return call.node("Round", x) if decimals == 0 else None


@row("cast")
def cast(call: OnnxSite, x: str, dtype: str) -> str:
    return call.cast(x, call.types[0].dtype, dtype)


@row("cast_like")
def cast_like(call: OnnxSite, x: str, like: str) -> str:
    return call.node("CastLike", x, like)


@row("gelu")
def gelu(call: OnnxSite, x: str, approximate: str) -> str:
    if call.opset >= 20:
        return call.node("Gelu", x, approximate=approximate)
    half, one = call.number(0.5), call.number(1.0)
    if approximate == "tanh":
        cube = call.node("Mul", call.node("Mul", x, x), call.node("Mul", x, call.number(0.044715)))
        inner = call.node("Mul", call.node("Add", x, cube), call.number(math.sqrt(2 / math.pi)))
        gate = call.node("Tanh", inner)
    else:
        gate = call.node("Erf", call.node("Mul", x, call.number(math.sqrt(0.5))))
    return call.node("Mul", call.node("Mul", x, half), call.node("Add", gate, one))


@row("elu")
def elu(call: OnnxSite, x: str, alpha: float) -> str:
    return call.node("Elu", x, alpha=alpha)


@row("celu")
def celu(call: OnnxSite, x: str, alpha: float) -> str | None:
    return call.node("Celu", x, alpha=alpha) if call.dtype == "float32" else None


@row("leaky_relu")
def leaky_relu(call: OnnxSite, x: str, alpha: float) -> str:
    return call.node("LeakyRelu", x, alpha=alpha)


@row("softplus")
def softplus(call: OnnxSite, x: str, beta: float, threshold: float | None) -> str | None:
    if threshold is not None and threshold * 1.0 < 15:  # where softplus(x) is not yet x
        return None
    if beta == 1.0:
        return call.node("Softplus", x)
    scale = call.number(beta)
    return call.node("Div", call.node("Softplus", call.node("Mul", x, scale)), scale)


@row("hardshrink")
def hardshrink(call: OnnxSite, x: str, lambd: float) -> str:
    return call.node("Shrink", x, lambd=lambd, bias=0.0)


@row("softshrink")
def softshrink(call: OnnxSite, x: str, lambd: float) -> str:
    return call.node("Shrink", x, lambd=lambd, bias=lambd)


@row("threshold")
def threshold(call: OnnxSite, x: str, limit: float, value: float) -> str:
    return call.node("Where", call.node("Greater", x, call.number(limit)), x, call.number(value))


@row("clip", "hardtanh")
def clip(call: OnnxSite, x: str, low: float | None, high: float | None) -> str | None:
    if call.types[0].dtype != call.dtype or (isinstance(low, float) or isinstance(high, float)) > call.is_float:
        return None
    bounds = ["" if bound is None else call.number(bound) for bound in (low, high)]
    return call.node("Clip", x, *bounds)
