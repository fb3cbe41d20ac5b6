"""Copies of Relax expressions with other variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta.backend.tvm import adapter as tvm


class Substitution:
    """Copies expressions with other values for their free variables.

    names: the values.  callees: functions by name that calls name instead of theirs."""

    def __init__(self, names: Mapping[Any, Any], callees: Mapping[str, Any] | None = None) -> None:
        self.names = dict(names)
        self.callees = callees or {}

    def value(self, value: Any) -> Any:
        if isinstance(value, tvm.RelaxIf):
            branches = (self.sequence(value.true_branch), self.sequence(value.false_branch))
            return tvm.RelaxIf(self.value(value.cond), *branches)
        if isinstance(value, tvm.RelaxCall):
            op = (
                self.callees.get(str(value.op.name_hint), value.op) if isinstance(value.op, tvm.GlobalVar) else value.op
            )
            return tvm.RelaxCall(op, [self.value(a) for a in value.args], value.attrs, value.ty_args)
        if isinstance(value, tvm.RelaxTupleGetItem):
            return tvm.RelaxTupleGetItem(self.value(value.tuple_value), value.index)
        if isinstance(value, tvm.RelaxTuple):
            return tvm.RelaxTuple([self.value(field) for field in value.fields])
        return self.names.get(value, value) if isinstance(value, tvm.RelaxVar) else value

    def sequence(self, body: Any) -> Any:
        if not isinstance(body, tvm.SeqExpr):
            return self.value(body)
        blocks = [tvm.BindingBlock([self.binding(b) for b in block.bindings]) for block in body.blocks]
        return tvm.SeqExpr(blocks, self.value(body.body))

    def binding(self, binding: Any) -> Any:
        value = self.value(binding.value)
        if isinstance(binding, tvm.MatchCast):
            return tvm.MatchCast(binding.var, value, binding.ty)
        return tvm.VarBinding(binding.var, value)
