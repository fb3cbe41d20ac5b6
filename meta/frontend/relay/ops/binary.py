"""Elementwise operators of two tensors."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float, is_int
from meta.frontend.relay.convert.call import OpCall, converter, operand, operands


@converter("divide")
def divide(call: OpCall) -> Any:
    """Relay truncates quotients of integers."""
    x, y = operands(call)
    return meta.divide(x, y) if is_float(call.args[0].dtype) else meta.trunc_divide(x, y)


@converter("where")
def where(call: OpCall) -> Any:
    condition, x, y = call.tensors(3)
    if condition.dtype != "bool":
        condition = meta.not_equal(condition, 0)
    return meta.where(condition, operand(x, y), operand(y, x))


@converter("fixed_point_multiply")
def fixed_point_multiply(call: OpCall) -> Any:
    """x * multiplier * 2 ** (shift - 31), rounded half up, on 64 bits."""
    (x,) = call.tensors(1)
    return fixed_point(call, x, call.int("multiplier"), call.int("shift"))


def fixed_point(call: OpCall, x: Tensor, multiplier: int, shift: int) -> Any:
    if not is_int(x.dtype):
        call.refuse(f"the dtype {x.dtype}", "integers")
    wide = meta.cast(x, "int64")
    if shift > 0:
        wide = meta.left_shift(wide, shift)
    right = 31 - min(shift, 0)
    product = meta.add(meta.multiply(wide, multiplier), 1 << (right - 1))
    return meta.cast(meta.right_shift(product, right), x.dtype)


@converter("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(call: OpCall) -> Any:
    """`fixed_point_multiply` with a multiplier, a left shift and a right shift for each element of `axes`."""
    x, *factors = call.tensors(4)
    axes = [a % x.ndim for a in call.sizes("axes")]
    shape = tuple(d if i in axes else 1 for i, d in enumerate(x.shape))
    multiplier, left, right = (meta.cast(meta.reshape(v, shape), "int64") for v in factors)
    wide = meta.cast(x, "int64")
    if call.flag("is_lshift_required"):
        wide = meta.left_shift(wide, left)
    total_right = meta.add(right, 31) if call.flag("is_rshift_required") else 31
    half = meta.left_shift(1, meta.subtract(total_right, 1)) if call.flag("is_rshift_required") else 1 << 30
    return meta.cast(meta.right_shift(meta.add(meta.multiply(wide, multiplier), half), total_right), x.dtype)
