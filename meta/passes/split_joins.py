"""Splits concatenations and stacks of long lists into several calls, where one kernel would read all operands.

    concatenate([x0, ..., x99])      concatenate([concatenate([x0, ..., x15]), ..., concatenate([x96, ..., x99])])

A kernel of TVM chooses among its operands for each element, and takes each of them as a parameter. A library copies one
after the other, so that its calls stay as they are.
"""

from __future__ import annotations

from meta.ir.expr import Atom, Binding, Call, CallInfo, Expr, FunctionExpr
from meta.ir.type import TensorType
from meta.op.dispatch import first_accepting, implementation
from meta.op.registry import Op
from meta.passes.manager import function_pass
from meta.passes.rewriting import Scope, by_op, counted, emit, rewrite


@function_pass("split_joins", "concatenate", "stack")
def split_joins(function: FunctionExpr) -> FunctionExpr:
    """Calls of concatenate and stack have at most `most_joined` operands, as their implementation says."""
    return rewrite(function, counted("split_joins", by_op({"concatenate": _split, "stack": _split})))


def _split(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = binding.value
    assert isinstance(call, Call)
    most = 0 if call.attrs else _most_joined(call)
    if not most or len(call.args[0]) <= most:
        return None
    assert isinstance(call.type, TensorType)
    parts, axis, name = list(call.args[0]), call.args[1] % call.type.ndim, call.op.name
    while len(parts) > 1:
        parts = [emit(scope, name, tuple(parts[i : i + most]), axis) for i in range(0, len(parts), most)]
        name = "concatenate"
    return parts[0]


def _most_joined(call: Call) -> int:
    """The operands of a call, at most, 0 for no limit."""
    assert isinstance(call.op, Op)
    assert isinstance(call.type, TensorType)
    info = CallInfo(call.op, (tuple(x.type for x in call.args[0]), *call.args[1:]), call.type, call.type.device)
    chosen = implementation(call.op, call.dialect) if call.dialect else first_accepting(info, in_program=True)
    return 0 if chosen is None else getattr(chosen.payload, "most_joined", 0)
