"""Fuses concatenations with the transpose that reads them.

    y = transpose(concatenate([a, b, c]))      one kernel of TVM, which writes y from a, b and c

A library's concatenation would write its result, for the transpose to read again. The gradient of a split of a
transposed tensor, such as queries, keys and values of attention, is of this form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meta.ir.expr import Binding, Call, CallInfo, Expr, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts, walk
from meta.modes import modes
from meta.op.dispatch import implementation
from meta.op.registry import Op
from meta.passes.manager import function_pass
from meta.passes.rewriting import Scope, by_op, counted, rewrite

_DIALECT = "tvm"


@function_pass("fuse_concatenations", "concatenate")
def fuse_concatenations(function: FunctionExpr) -> FunctionExpr:
    """Choose TVM for a concatenation that only one transpose reads, if both keep the last axis: rows stay contiguous.
    Inside `with_dialect` nothing changes."""
    if modes.dialects is not None:
        return function
    counts = use_counts(function)
    read: set[Var] = {b.value.args[0] for b in walk(function) if _keeps_rows(b.value, "transpose", "axes")}  # type: ignore[union-attr]

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        del scope
        call = binding.value
        if binding.var not in read or counts[binding.var] != 1 or not _keeps_rows(call, "concatenate", "axis"):
            return None
        assert isinstance(call, Call)
        return replace(call, dialect=_DIALECT) if _tvm_accepts(call) else None

    return rewrite(function, counted("fuse_concatenations", by_op({"concatenate": rule})))


def _keeps_rows(value: Any, op: str, argument: str) -> bool:
    """Whether a call, for which no dialect has been chosen, leaves the last axis of its operands as it is."""
    if not isinstance(value, Call) or value.op_name != op or value.dialect is not None or value.attrs:
        return False
    assert isinstance(value.op, Op)
    assert isinstance(value.type, TensorType)
    last, changed = value.type.ndim - 1, value.args[value.op.schema.index[argument]]
    if op == "transpose":
        return bool(changed) and changed[-1] % value.type.ndim == last
    return changed % value.type.ndim != last


def _tvm_accepts(call: Call) -> bool:
    """Whether its sizes are known and TVM has a kernel for them."""
    kind: Any = call.type
    if not kind.is_static:
        return False
    types = (tuple(x.type for x in call.args[0]), *call.args[1:])
    info = CallInfo(call.op, types, kind, kind.device)  # type: ignore[arg-type]
    of_tvm = implementation(info.op, _DIALECT)
    return of_tvm is not None and of_tvm.refusal(info) is None
