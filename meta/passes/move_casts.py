"""Casts that come before the operators whose results are read in another dtype.

narrow_gathers    cast(reshape(all_gather(x)), "bfloat16")  =>  reshape(all_gather(cast(x, "bfloat16")))
widen_sums        cast(reshape(sum(x)), "float32")          =>  reshape(sum(cast(x, "float32")))

Sharded parameters under AMP are of the first form: fewer bytes are sent and kept, and each rank casts only its part.
Gradients of biases are of the second: a sum of halves adds in float32 anyway, and its kernel takes the cast in, as it
takes no cast behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta.dtype import HALVES, accumulation_dtype, itemsize
from meta.ir.expr import Binding, Call, Expr, FunctionExpr
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts
from meta.op.registry import get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Rule, Scope, by_op, counted, plain_call, rewrite

_MOVES: Final = frozenset({"reshape", "transpose", "strided_slice", "squeeze", "expand_dims"})


@function_pass("narrow_gathers", "all_gather")
def narrow_gathers(function: FunctionExpr) -> FunctionExpr:
    """Cast a tensor before all_gather, if nothing but one cast to fewer bytes reads the result, as it is or moved."""
    return rewrite(function, counted("narrow_gathers", _before(function, "all_gather", _narrows)))


@function_pass("widen_sums", "sum", device="cuda")
def widen_sums(function: FunctionExpr) -> FunctionExpr:
    """Cast halves before their sum on GPUs, if nothing but one cast to the dtype of the addition reads the result, as
    it is or moved."""
    return rewrite(function, counted("widen_sums", _before(function, "sum", _widens)))


def _before(function: FunctionExpr, op: str, is_wanted: Callable[[TensorType, TensorType], bool]) -> Rule:
    """The rule that moves casts before an operator. is_wanted: by the types before and after a cast."""
    counts = use_counts(function)

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        cast = plain_call(binding.value, "cast")
        if cast is None or not is_wanted(cast.args[0].type, cast.type):  # type: ignore[arg-type]  # of a cast
            return None
        atom, moves = cast.args[0], list[Call]()
        while True:
            call = plain_call(scope.definition(atom), op, *_MOVES)
            if counts[atom] != 1 or call is None:
                return None
            if call.op_name == op:
                break
            moves.append(call)
            atom = call.args[0]
        calls = [call, *reversed(moves)]
        result: Any = scope.call(get("cast"), (call.args[0], *cast.args[1:]))
        for each in calls[:-1]:
            result = scope.call(each.op, (result, *each.args[1:]))
        return scope.call_expr(calls[-1].op, (result, *calls[-1].args[1:]))

    return by_op({"cast": rule})


def _narrows(source: TensorType, target: TensorType) -> bool:
    return itemsize(target.dtype) < itemsize(source.dtype)


def _widens(source: TensorType, target: TensorType) -> bool:
    return source.dtype in HALVES and target.dtype == accumulation_dtype(source.dtype)
