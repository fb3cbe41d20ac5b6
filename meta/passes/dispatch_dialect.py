"""Dialect choice as a pass."""

from __future__ import annotations

from dataclasses import replace

from meta.ir.expr import Atom, Binding, Call, Expr, arg_types
from meta.ir.visitor import Scope
from meta.op.dispatch import CallInfo, choose, flat_types
from meta.op.registry import Op
from meta.passes.manager import rewrite_pass


def _dispatch(binding: Binding, scope: Scope) -> Expr | Atom | None:
    del scope
    call = binding.value
    if not isinstance(call, Call) or call.dialect is not None or not isinstance(call.op, Op) or call.op.view:
        return None
    types = arg_types(call.args)
    device = flat_types((*types, call.type))[0].device
    return replace(call, dialect=choose(CallInfo(call.op, types, call.type, device)).dialect.name)


dispatch_dialect = rewrite_pass(
    "dispatch_dialect",
    "Name on every operator call the dialect that runs it: the highest plevel that accepts its types, or the first of "
    "with_dialect. Changes of shape alone need none. Raises DispatchError for a call that none accepts.",
    [_dispatch],
    rounds=1,
)
