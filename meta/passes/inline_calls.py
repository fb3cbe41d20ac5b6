"""Inlining of function calls."""

from __future__ import annotations

from meta.ir.expr import Atom, Binding, Call, Expr, Function, GlobalVar, Tuple, Var
from meta.ir.module import Module
from meta.ir.visitor import Scope, called_globals, inline, rewrite
from meta.passes.manager import Pass


def _inline(module: Module) -> Module:
    """Put the bodies of functions in place of their calls, except those that (also indirectly) call themselves."""
    recursive = {name for name in module if name in _reached(module, name)}

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        if not isinstance(value, Call) or value.callee is None:
            return None
        target = _target(module, value.callee, scope, recursive)
        if target is None:
            return None
        result = inline(scope, target, value.args)
        return result if not isinstance(result, Tuple) else Tuple(result.fields, value.span)

    functions = dict(module.functions)
    for _ in range(len(functions) + 1):
        new = {name: rewrite(f, rule) for name, f in functions.items()}
        if all(new[name] is f for name, f in functions.items()):
            break
        functions = new
    return module if all(functions[n] is f for n, f in module.functions.items()) else Module(functions)


def _reached(module: Module, name: str) -> set[str]:
    """The functions that `name` calls, directly and indirectly."""
    seen: set[str] = set()
    stack = [name]
    while stack:
        for called in called_globals(module[stack.pop()]):
            if called not in seen and called in module:
                seen.add(called)
                stack.append(called)
    return seen


def _target(module: Module, callee: Var | GlobalVar, scope: Scope, recursive: set[str]) -> Function | None:
    if isinstance(callee, GlobalVar):
        return None if callee.name in recursive else module[callee.name]
    definition = scope.definition(callee)
    if not isinstance(definition, Function):
        return None
    from meta.ir.visitor import free_vars

    return None if callee in free_vars(definition) else definition


inline_calls = Pass("inline_calls", _inline, _inline.__doc__ or "")
