"""Inlining of function calls."""

from __future__ import annotations

from meta.ir.analysis import reachable
from meta.ir.expr import Atom, Binding, Call, Expr, FunctionExpr, GlobalVar, Var
from meta.ir.module import Module
from meta.ir.visitor import Scope, called_globals, free_vars, inline, rewrite, walk
from meta.passes.manager import Pass


def _inline(module: Module) -> Module:
    """Put the bodies of functions in place of their calls, except those that (also indirectly) call themselves."""
    recursive = {name for name in module if any(name in reachable(module, f) for f in _called(module, name))}
    done: dict[str, FunctionExpr] = {}
    for name in _callees_first(module):
        done[name] = _inlined(module[name], {n: f for n, f in done.items() if n not in recursive})
    same = all(done[n] is f for n, f in module.functions.items())
    return module if same else Module({n: done[n] for n in module.functions})


def _called(module: Module, name: str) -> list[str]:
    return sorted(n for n in called_globals(module[name]) if n in module)


def _callees_first(module: Module) -> list[str]:
    """The names of the functions, each after those that it calls; recursive ones in any order."""
    order: dict[str, None] = {}
    opened: set[str] = set()
    stack = list(reversed(tuple(module)))
    while stack:
        name = stack[-1]
        if name in opened:
            order.setdefault(stack.pop())
            continue
        opened.add(name)
        stack += [n for n in _called(module, name) if n not in opened]
    return list(order)


def _inlined(function: FunctionExpr, inlinable: dict[str, FunctionExpr]) -> FunctionExpr:
    """`function` with the bodies of `inlinable` functions and local closures in place of their calls, until no call is
    left that can be replaced."""

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        if not isinstance(value, Call) or value.callee is None:
            return None
        target = _target(value.callee, scope, inlinable)
        return None if target is None else inline(scope, target, value.args)

    while any(isinstance(b.value, Call) and b.value.callee is not None for b in walk(function)):
        new = rewrite(function, rule)
        if new is function:
            break
        function = new
    return function


def _target(callee: Var | GlobalVar, scope: Scope, inlinable: dict[str, FunctionExpr]) -> FunctionExpr | None:
    """The function that a call runs, None where it is recursive or a value computed at run time."""
    if isinstance(callee, GlobalVar):
        return inlinable.get(callee.name)
    definition = scope.definition(callee)
    return definition if isinstance(definition, FunctionExpr) and callee not in free_vars(definition) else None


inline_calls = Pass("inline_calls", _inline, _inline.__doc__ or "")
