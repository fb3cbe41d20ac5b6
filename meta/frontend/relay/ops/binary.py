"""Elementwise operators of two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta._generated import functions as F
from meta.dtype import is_float, is_int
from meta.frontend.relay.call import OpCall, operand
from meta.frontend.relay.table import converter


def operands(call: OpCall) -> tuple[Any, Any]:
    """Two tensors of one dtype; a constant without axes as a number."""
    x, y = call.tensors(2)
    if x.dtype != y.dtype:
        call.refuse(f"operands of dtypes {x.dtype} and {y.dtype}", "one dtype")
    return operand(x, y), operand(y, x)


_SAME: dict[str, Callable[[Any, Any], Any]] = {
    "add": F.add, "subtract": F.subtract, "multiply": F.multiply, "maximum": F.maximum, "minimum": F.minimum,
    "power": F.power, "equal": F.equal, "not_equal": F.not_equal, "less": F.less, "less_equal": F.less_equal,
    "greater": F.greater, "greater_equal": F.greater_equal, "logical_and": F.logical_and,
    "logical_or": F.logical_or, "logical_xor": F.logical_xor, "bitwise_and": F.bitwise_and,
    "bitwise_or": F.bitwise_or, "bitwise_xor": F.bitwise_xor, "left_shift": F.left_shift,
    "right_shift": F.right_shift, "floor_divide": F.floor_divide, "floor_mod": F.mod,
}  # fmt: skip


def _binary(make: Callable[[Any, Any], Any]) -> Callable[[OpCall], Any]:
    return lambda call: make(*operands(call))


for _name, _make in _SAME.items():
    converter(_name)(_binary(_make))


@converter("divide")
def divide(call: OpCall) -> Any:
    """Of integers, Relay's quotient is cut off towards zero."""
    x, y = operands(call)
    return F.divide(x, y) if is_float(call.args[0].dtype) else F.trunc_divide(x, y)


@converter("trunc_divide")
def trunc_divide(call: OpCall) -> Any:
    return F.trunc_divide(*operands(call))


@converter("mod", "trunc_mod")
def mod(call: OpCall) -> Any:
    """The remainder with the sign of x, as C has it."""
    return F.trunc_mod(*operands(call))


@converter("where")
def where(call: OpCall) -> Any:
    condition, x, y = call.tensors(3)
    if condition.dtype != "bool":
        condition = F.not_equal(condition, 0)
    return F.where(condition, operand(x, y), operand(y, x))


@converter("fixed_point_multiply")
def fixed_point_multiply(call: OpCall) -> Any:
    """x * multiplier * 2 ** (shift - 31), rounded half up, on 64 bits."""
    (x,) = call.tensors(1)
    return fixed_point(call, x, call.int("multiplier"), call.int("shift"))


def fixed_point(call: OpCall, x: Any, multiplier: int, shift: int) -> Any:
    if not is_int(x.dtype):
        call.refuse(f"the dtype {x.dtype}", "integers")
    wide = F.cast(x, "int64")
    if shift > 0:
        wide = F.left_shift(wide, shift)
    right = 31 - min(shift, 0)
    product = F.add(F.multiply(wide, multiplier), 1 << (right - 1))
    return F.cast(F.right_shift(product, right), x.dtype)


@converter("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(call: OpCall) -> Any:
    """The same with multipliers and shifts, to the left before and to the right behind, of their own along axes."""
    x, *factors = call.tensors(4)
    axes = [a % x.ndim for a in call.sizes("axes")]
    shape = tuple(d if i in axes else 1 for i, d in enumerate(x.shape))
    multiplier, left, right = (F.cast(F.reshape(v, shape), "int64") for v in factors)
    wide = F.cast(x, "int64")
    if call.flag("is_lshift_required"):
        wide = F.left_shift(wide, left)
    behind = F.add(right, 31) if call.flag("is_rshift_required") else 31
    half = F.left_shift(1, F.subtract(behind, 1)) if call.flag("is_rshift_required") else 1 << 30
    return F.cast(F.right_shift(F.add(F.multiply(wide, multiplier), half), behind), x.dtype)
