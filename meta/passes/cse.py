"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from meta.ir.compare import value_key
from meta.ir.expr import Atom, Binding, Expr, Function, Var
from meta.ir.visitor import Scope, rewrite
from meta.passes.manager import counted, function_pass


@function_pass("cse")
def cse(function: Function) -> Function:
    """Compute once what is computed twice from the same values, in one block or in blocks around it. Random operators
    are functions of their key, so two draws are never merged."""
    seen: dict[Hashable, Var] = {}

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        key = value_key(binding.value)
        if key is None:
            return None
        earlier = seen.get(key)
        if earlier is not None and scope.definition(earlier) is not None:  # else its block has ended
            return earlier
        seen[key] = binding.var
        return None

    return rewrite(function, counted("cse", rule))
