"""Elementwise operators of one tensor."""

from __future__ import annotations

import math
from typing import Any, Final

from meta.frontend.onnx.export_ops._table import OnnxSite, row, rows
from meta.frontend.onnx.names import UNARY
from meta.frontend.rows import Function


def _node(kind: str) -> Function:
    return lambda call, x: call.node(kind, x)


_ROWS: Final[dict[str, Function]] = {
    **{name: _node(kind) for name, kind in UNARY.items()},
    "celu": lambda call, x, alpha: call.node("Celu", x, alpha=alpha) if call.dtype == "float32" else None,
    "elu": lambda call, x, alpha: call.node("Elu", x, alpha=alpha),
    "erfc": lambda call, x: call.node("Sub", call.number(1.0), call.node("Erf", x)),
    "exp2": lambda call, x: call.node("Pow", call.number(2.0), x),
    "expm1": lambda call, x: call.node("Sub", call.node("Exp", x), call.number(1.0)),
    "hardshrink": lambda call, x, lambd: call.node("Shrink", x, lambd=lambd, bias=0.0),
    "hardsigmoid": lambda call, x: call.node("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "isfinite": lambda call, x: call.node("Not", call.node("Or", call.node("IsNaN", x), call.node("IsInf", x))),
    "isinf": _node("IsInf"),
    "isneginf": lambda call, x: call.node("IsInf", x, detect_positive=0),
    "isposinf": lambda call, x: call.node("IsInf", x, detect_negative=0),
    "leaky_relu": lambda call, x, alpha: call.node("LeakyRelu", x, alpha=alpha),
    "log10": lambda call, x: call.node("Mul", call.node("Log", x), call.number(1 / math.log(10))),
    "log1p": lambda call, x: call.node("Log", call.node("Add", x, call.number(1.0))),
    "log2": lambda call, x: call.node("Mul", call.node("Log", x), call.number(1 / math.log(2))),
    "selu": _node("Selu"),
    "softshrink": lambda call, x, lambd: call.node("Shrink", x, lambd=lambd, bias=lambd),
    "trunc": lambda call, x: _whole(call, x),
}
_ROUNDINGS: Final = ("ceil", "floor", "trunc")


def _with_operand(function: Function, *, rounds: bool) -> Function:
    """A row whose tensor has the result's dtype; where the results are flags, a floating one. rounds: integers stay."""

    def convert(call: OnnxSite, x: str, *rest: Any) -> Any:
        source = call.types[0].dtype
        if rounds and not call.is_float:
            return call.node("Identity", x)
        dtype = call.dtype if call.dtype != "bool" else source if call.is_float else "float32"
        return function(call, call.cast(x, source, dtype), *rest)

    return convert


def _whole(call: OnnxSite, x: str) -> str:
    """Numbers without their fractions."""
    return call.node("Mul", call.node("Sign", x), call.node("Floor", call.node("Abs", x)))


rows({name: _with_operand(function, rounds=name in _ROUNDINGS) for name, function in _ROWS.items()})
rows({
    "bitwise_not": lambda call, x: call.node("Not" if call.dtype == "bool" else "BitwiseNot", x),
    "cast": lambda call, x, dtype: call.cast(x, call.types[0].dtype, dtype),
    "logical_not": lambda call, x: call.node("Not", call.cast(x, call.types[0].dtype, "bool")),
})  # fmt: skip
row("copy", "stop_gradient", "device_copy", "real", "conj")(lambda call, x, *_: call.node("Identity", x))


@row("round")
def round_(call: OnnxSite, x: str, decimals: int) -> str | None:
    if not call.is_float:
        return call.node("Identity", x)
    return call.node("Round", x) if decimals == 0 else None


@row("gelu")
def gelu(call: OnnxSite, x: str, approximate: str) -> str | None:
    return call.node("Gelu", x, approximate=approximate) if call.opset >= 20 else None


@row("softplus")
def softplus(call: OnnxSite, x: str, beta: float, threshold: float | None) -> str | None:
    is_softplus = beta == 1.0 and (threshold is None or threshold >= 15)  # from where on softplus(x) is x
    return call.node("Softplus", x) if is_softplus else None


@row("clip", "hardtanh")
def clip(call: OnnxSite, x: str, low: float | None, high: float | None) -> str | None:
    if call.types[0].dtype != call.dtype or (isinstance(low, float) or isinstance(high, float)) > call.is_float:
        return None
    bounds = ["" if bound is None else call.number(bound) for bound in (low, high)]
    return call.node("Clip", x, *bounds)
