"""Elementwise operators of several operands, which are tensors or numbers."""

from __future__ import annotations

from typing import Any, Final

from meta import dtype as dtypes
from meta.frontend.onnx.export_ops._table import OnnxSite, row, rows
from meta.frontend.onnx.names import ARITHMETIC, BITWISE, COMPARISONS, LOGICAL, VARIADIC
from meta.frontend.rows import Function
from meta.ir.type import operand_dtype

_OF_FLAGS: Final = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And"}


def _operands(call: OnnxSite, x1: Any, x2: Any, dtype: str = "") -> tuple[str, str]:
    """Both operands in one dtype, by default the result's."""
    return call.operand(0, x1, dtype or call.dtype), call.operand(1, x2, dtype or call.dtype)


def _arithmetic(kind: str) -> Function:
    def convert(call: OnnxSite, x1: Any, x2: Any) -> str | None:
        node = _OF_FLAGS.get(kind) if call.dtype == "bool" else kind
        return None if node is None else call.node(node, *_operands(call, x1, x2))

    return convert


def _comparison(kind: str) -> Function:
    def convert(call: OnnxSite, x1: Any, x2: Any) -> str:
        dtype = operand_dtype(*call.args)
        if dtype == "bool" and kind != "Equal":
            dtype = "int32"
        return call.node(kind, *_operands(call, x1, x2, dtype))

    return convert


def _bitwise(name: str) -> Function:
    return lambda call, x1, x2: call.node(
        LOGICAL[f"logical_{name}"] if call.dtype == "bool" else BITWISE[f"bitwise_{name}"], *_operands(call, x1, x2)
    )


def _logical(kind: str) -> Function:
    return lambda call, x1, x2: call.node(kind, *_operands(call, x1, x2, "bool"))


rows({name: _arithmetic(kind) for name, kind in {**ARITHMETIC, **VARIADIC}.items()})
rows({name: _comparison(kind) for name, kind in COMPARISONS.items()})
rows({name: _logical(kind) for name, kind in LOGICAL.items()})
rows({f"bitwise_{name}": _bitwise(name) for name in ("and", "or", "xor")})
rows({
    "divide": lambda call, x1, x2: call.node("Div", *_operands(call, x1, x2)),
    "not_equal": lambda call, x1, x2: call.node("Not", _comparison("Equal")(call, x1, x2)),
    "power": lambda call, x1, x2: call.node("Pow", *_operands(call, x1, x2)) if dtypes.is_float(call.dtype) else None,
    "trunc_mod": lambda call, x1, x2: (
        call.node("Mod", *_operands(call, x1, x2), fmod=1) if call.dtype != "bool" else None
    ),
})  # fmt: skip


@row("floor_divide")
def floor_divide(call: OnnxSite, x1: Any, x2: Any) -> str | None:
    if dtypes.is_float(call.dtype) or call.dtype == "bool":
        return None
    a, b = _operands(call, x1, x2)
    return call.node("Div", call.node("Sub", a, call.node("Mod", a, b)), b)


@row("mod")
def mod(call: OnnxSite, x1: Any, x2: Any) -> str | None:
    if call.dtype == "bool":
        return None
    a, b = _operands(call, x1, x2)
    if not dtypes.is_float(call.dtype):
        return call.node("Mod", a, b)
    rest = call.node("Mod", a, b, fmod=1)
    zero = call.number(0.0)
    opposite = call.node("Less", call.node("Mul", call.node("Sign", rest), call.node("Sign", b)), zero)
    return call.node("Where", opposite, call.node("Add", rest, b), rest)


@row("where")
def where(call: OnnxSite, condition: str, x: Any, y: Any) -> str:
    flag = call.cast(condition, call.types[0].dtype, "bool")
    return call.node("Where", flag, call.operand(1, x, call.dtype), call.operand(2, y, call.dtype))


@row("hypot")
def hypot(call: OnnxSite, x1: Any, x2: Any) -> str:
    a, b = _operands(call, x1, x2)
    return call.node("Sqrt", call.node("Add", call.node("Mul", a, a), call.node("Mul", b, b)))
