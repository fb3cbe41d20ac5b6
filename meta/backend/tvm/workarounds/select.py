"""Selections that are opaque calls until the end of lowering.

`tirx.Select` computes both sides, but TVM simplifies each side under its condition. That removes the bounds that keep
an index inside memory, and the replacement of a divisor of 0 that TVM knows, such as a loop variable or a tensor of
zeros, where the quotient is not selected.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import dtype_of, operator


def opaque_select(condition: tvm.Expr, value: tvm.Expr, otherwise: tvm.Expr) -> Any:
    """`value` where the condition holds, else `otherwise`. Both are computed, so their indices must be in bounds."""
    return tvm.tirx.call_intrin(dtype_of(value), _operator(), condition, value, otherwise)


def divisor_that_never_traps(b: tvm.Expr) -> Any:
    """An integer divisor, and 1 in place of 0 and of -1, by which processors cannot divide every number."""
    if isinstance(b, tvm.IntImm):  # TVM divides by a literal faster
        return b if int(b) not in (0, -1) else tvm.tirx.const(1, dtype_of(b))
    return tvm.tirx.call_intrin(dtype_of(b), _divisor_operator(), b)


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    _operator()
    _divisor_operator()


@cache
def _operator() -> Any:
    return operator("select", 3, default=lambda call: tvm.tirx.Select(*call.args))


@cache
def _divisor_operator() -> Any:
    return operator("divisor", 1, default=_one_for_traps)


def _one_for_traps(call: tvm.Call) -> Any:
    (b,), dtype = call.args, dtype_of(call)
    traps = tvm.tirx.EQ(b, tvm.tirx.const(0, dtype))
    if not dtype.startswith("u"):
        traps = tvm.tirx.Or(traps, tvm.tirx.EQ(b, tvm.tirx.const(-1, dtype)))
    return tvm.tirx.Select(traps, tvm.tirx.const(1, dtype), b)
