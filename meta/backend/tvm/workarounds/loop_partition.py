"""Loops with a hint, which TVM's pass LoopPartition divides by each condition in their bodies.

If the division depends on other variables the pass does not prove that the parts are apart: it ran the last vector of
some rows twice, which is wrong where the result overwrites its operand. In place of the variable of a loop of one
iteration it writes a 0 of 32 bits, also beside numbers of 64 bits, which later passes refuse.
"""

from __future__ import annotations

from typing import Any, Final

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import dtype_of
from meta.backend.tvm.workarounds.exact import operators

OPTIONS: Final = {"s_tir.LoopPartition": {"no_unroll_loop_with_extent_one": True}}
"""The configuration of TVM's passes in which loops of one iteration stay."""
_COMPARISONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")


def keep_conditions(func: tvm.PrimFunc) -> Any:
    """`func` with comparisons of positions in conditions, such as `j <= i` of a mask, as operators that LoopPartition
    does not know, where they involve several variables."""

    def replace(comparison: tvm.Expr) -> Any:
        if dtype_of(comparison.a) not in dtypes.INTS or _has_loads(comparison) or not _has_two_variables(comparison):
            return comparison
        name = type(comparison).__name__
        return tvm.tirx.call_intrin("bool", operators()[name], comparison.a, comparison.b)

    def kept(condition: tvm.Expr) -> Any:
        return tvm.structural_map(condition, (tuple(getattr(tvm.tirx, name) for name in _COMPARISONS), replace))

    def of_select(select: tvm.Expr) -> Any:
        return tvm.tirx.Select(kept(select.condition), select.true_value, select.false_value)

    def of_call(call: tvm.Call) -> Any:
        if not getattr(call.op, "name", "").endswith(".if_then_else"):
            return call
        return tvm.tirx.if_then_else(kept(call.args[0]), *call.args[1:])

    return tvm.structural_map(func, [(tvm.tirx.Select, of_select), (tvm.Call, of_call)])


def _has_loads(x: tvm.Expr) -> bool:
    """Whether an expression reads elements. Their width stays as it is where TVM narrows positions, and LoopPartition
    divides no loop by them."""
    loads: list[Any] = []
    tvm.structural_walk(x, (tvm.TensorLoad, loads.append))
    return bool(loads)


def _has_two_variables(x: tvm.Expr) -> bool:
    variables: list[Any] = []
    tvm.structural_walk(x, (tvm.tirx.Var, lambda v: None if any(map(v.same_as, variables)) else variables.append(v)))
    return len(variables) > 1
