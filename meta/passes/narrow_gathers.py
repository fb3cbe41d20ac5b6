"""Casts tensors before ranks gather them, where they are read in a narrower dtype.

    cast(reshape(all_gather(x)), "bfloat16")      reshape(all_gather(cast(x, "bfloat16")))

Sharded parameters under AMP are of this form. Fewer bytes are sent and kept, and each rank casts only its own part.
"""

from __future__ import annotations

from typing import Any, Final

from meta.dtype import itemsize
from meta.ir.expr import Binding, Call, Expr, FunctionExpr
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts
from meta.op.registry import get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Scope, by_op, counted, rewrite

_MOVES: Final = frozenset({"reshape", "transpose", "strided_slice", "squeeze", "expand_dims"})


@function_pass("narrow_gathers", "all_gather")
def narrow_gathers(function: FunctionExpr) -> FunctionExpr:
    """Cast a tensor before all_gather, if nothing but one cast to fewer bytes reads the result, as it is or moved."""
    counts = use_counts(function)

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        cast = binding.value
        assert isinstance(cast, Call)
        if not _narrows(cast):
            return None
        atom, moves = cast.args[0], list[Call]()
        while True:
            call: Any = scope.definition(atom)
            if counts[atom] != 1 or not isinstance(call, Call) or call.dialect is not None or call.attrs:
                return None
            if call.op_name == "all_gather":
                break
            if call.op_name not in _MOVES:
                return None
            moves.append(call)
            atom = call.args[0]
        calls = [call, *reversed(moves)]
        result: Any = scope.call(get("cast"), (call.args[0], *cast.args[1:]))
        for each in calls[:-1]:
            result = scope.call(each.op, (result, *each.args[1:]))
        return scope.call_expr(calls[-1].op, (result, *calls[-1].args[1:]))

    return rewrite(function, counted("narrow_gathers", by_op({"cast": rule})))


def _narrows(cast: Call) -> bool:
    source, target = cast.args[0].type, cast.type
    if cast.dialect is not None or cast.attrs or not isinstance(source, TensorType):
        return False
    return isinstance(target, TensorType) and itemsize(target.dtype) < itemsize(source.dtype)
