"""Inlining of function calls."""

from __future__ import annotations

from meta.ir.analysis import call_graph, callees_first, recursive_functions
from meta.ir.builder import Module
from meta.ir.expr import Atom, Binding, Call, Expr, FunctionExpr, GlobalVar, Var
from meta.ir.visitor import free_vars, inline, walk
from meta.limits import MAX_INLINED
from meta.passes.manager import Pass
from meta.passes.rewriting import Scope, rewrite


def _inline(module: Module) -> Module:
    """Put the bodies of functions in place of their calls, except those that (also indirectly) call themselves. Calls
    stay where the program would grow by more than `limits.MAX_INLINED` bindings."""
    calls = {name: called & module.functions.keys() for name, called in call_graph(module).items()}
    recursive = recursive_functions(calls)
    room = _Room()
    done: dict[str, FunctionExpr] = {}
    for name in callees_first(calls):
        done[name] = _inlined(module[name], {n: f for n, f in done.items() if n in calls[name] - recursive}, room)
    same = all(done[n] is f for n, f in module.functions.items())
    return module if same else Module({n: done[n] for n in module.functions})


class _Room:
    """The bindings that a module may still grow by, and the sizes of functions."""

    def __init__(self) -> None:
        self.bindings = MAX_INLINED
        self.sizes: dict[FunctionExpr, int] = {}

    def take(self, function: FunctionExpr) -> bool:
        """Whether `function` may be inlined once more; if so, its bindings are counted."""
        size = self.sizes.get(function)
        if size is None:
            size = self.sizes[function] = sum(1 for _ in walk(function)) + 1
        if size > self.bindings:
            return False
        self.bindings -= size
        return True


def _inlined(function: FunctionExpr, inlinable: dict[str, FunctionExpr], room: _Room) -> FunctionExpr:
    """`function` with the bodies of `inlinable` functions and local closures in place of their calls, until no call is
    left that can be replaced."""

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        if not isinstance(value, Call) or value.callee is None:
            return None
        target = _target(value.callee, scope, inlinable)
        return None if target is None or not room.take(target) else inline(scope, target, value.args)

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


inline_calls = Pass("inline_calls", _inline, _inline.__doc__ or "", looks_for=("",))
