"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from meta.ir.compare import value_key
from meta.ir.expr import INPLACE, Atom, Binding, Call, Expr, Function, Var
from meta.ir.visitor import Scope, rewrite
from meta.passes.manager import counted, function_pass


@function_pass("cse")
def cse(function: Function) -> Function:
    """Compute once what is computed twice from the same values, in one block or in blocks around it. Random operators
    are functions of their key, so two draws are never merged."""
    seen: dict[Hashable, Var] = {}

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        key = None if isinstance(value, Call) and INPLACE in value.attrs else value_key(value)
        if key is None:
            return None
        found = seen.get(key)
        if found is not None and scope.definition(found) is not None:  # else its block has ended
            return found
        seen[key] = binding.var
        return None

    return rewrite(function, counted("cse", rule))
