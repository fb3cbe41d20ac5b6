"""Dialect choice as a pass."""

from __future__ import annotations

from dataclasses import replace

from meta.ir.expr import Atom, Binding, Call, Expr, arg_types
from meta.ir.visitor import Scope
from meta.op.dispatch import CallInfo, choose, flat_types
from meta.op.registry import Op, as_type
from meta.passes.manager import rewrite_pass


def _dispatch(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = binding.value
    if not isinstance(call, Call) or call.dialect is not None or not isinstance(call.op, Op) or call.op.view:
        return None
    tensors = flat_types((*arg_types(call.args), call.type))
    info = CallInfo(call.op, tuple(map(as_type, arg_types(call.args))), call.type, tensors[0].device)
    return replace(call, dialect=choose(info).dialect.name)


dispatch_dialect = rewrite_pass(
    "dispatch_dialect",
    "Name on every operator call the dialect that runs it: the highest plevel that accepts its types, or the first of "
    "with_dialect. Raises DispatchError for a call that none accepts.",
    [_dispatch],
    rounds=1,
)
