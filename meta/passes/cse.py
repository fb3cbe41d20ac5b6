"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from meta.ir.compare import value_key
from meta.ir.expr import Atom, Binding, Expr, Function, Var
from meta.ir.visitor import Scope, rewrite
from meta.passes.manager import function_pass


@function_pass("cse")
def cse(function: Function) -> Function:
    """Compute once what is computed twice from the same values in one block. Random operators are functions of their
    key, so two draws are never merged."""
    seen: dict[Hashable, Var] = {}

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        if len(scope.bindings) == 0:
            seen.clear()  # a new block: what its neighbours computed is not in scope
        key = value_key(binding.value)
        if key is None:
            return None
        found = seen.get(key)
        if found is not None and scope.definition(found) is not None and found.type == binding.var.type:
            return found if any(b.var is found for b in scope.bindings) else None
        seen[key] = binding.var
        return None

    return rewrite(function, rule)
