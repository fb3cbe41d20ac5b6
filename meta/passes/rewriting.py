"""Rules, which rewrite one binding each, so that a pass is a table of small functions.

    def double(binding, scope):                       # a rule: what to put in place of a binding, or None
        match binding.value:
            case Call(op=Op(name="add"), args=(x, y)) if x is y:
                return scope.call_expr(multiply, (x, 2.0))

    function = rewrite(function, double)

`rewrite` offers each binding, its operands already rewritten and its nested blocks first, to the rules in order.
The first answer other than None counts: an expression replaces the value, an atom the variable.
`scope` is the `Builder` of the new code: it takes bindings to put in front, and knows the definitions so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from meta.ir.builder import Builder, applied_type
from meta.ir.expr import ATOMS, Atom, Binding, Block, Call, Expr, FunctionExpr, GlobalVar, If, Var, arg_types, operands
from meta.ir.printer import to_text
from meta.ir.type import TensorType
from meta.ir.visitor import Substitution, nested_blocks, with_blocks, with_operands, with_results
from meta.op.registry import Op, get
from meta.passes.manager import Pass, function_pass, open_context

Scope = Builder
Rule = Callable[[Binding, Scope], Expr | Atom | None]

VIEWS: Final = ("reshape", "squeeze", "expand_dims", "reshape_like")
"""Operators that change only the shape."""


def plain_call(value: object, *ops: str) -> Call | None:
    """A call without attributes for which no dialect has been chosen, of one of `ops` if any are named; else None."""
    if not isinstance(value, Call) or value.dialect is not None or value.attrs:
        return None
    return value if not ops or value.op_name in ops else None


def is_elementwise(value: Any, like: Any = None) -> bool:
    """Whether a value is a plain call that computes each element of a tensor from its operands' elements there.

    like: a type whose shape the result has to have."""
    call: Any = plain_call(value)
    if call is None or not isinstance(call.op, Op) or call.op.view or call.op.pattern not in ("elemwise", "broadcast"):
        return False
    return isinstance(call.type, TensorType) and (like is None or call.type.shape == like.shape)


def emit(scope: Scope, name: str, *args: Any) -> Any:
    """Emit a call of an operator, with its defaults for arguments after `args`; returns the variable of the result."""
    op = get(name)
    return scope.call(op, op.schema.bind(name, args, {}))


def retyped(call: Call) -> Call:
    """`call` with its type inferred again; raises what the type rule of its operator raises."""
    if isinstance(call.op, (Var, GlobalVar)):
        kind = applied_type(call.op, call.args)
    else:
        kind = call.op.infer(arg_types(call.args))
    return call if kind == call.type else replace(call, type=kind)


class _Rewriter:
    """One traversal: the rules, the builder of the new code, and the atoms that replace variables."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.builder = Builder(caller_spans=False)
        self.substitution: Substitution = {}

    def atom(self, atom: Atom) -> Atom:
        while isinstance(atom, Var) and atom in self.substitution:
            atom = self.substitution[atom]
        return atom

    def block(self, block: Block) -> Block:
        with self.builder.block() as scope:
            for binding in block.bindings:
                self.binding(binding)
            scope.ret(with_results(block, [self.atom(a) for a in block.results]))
        if scope.block.result is block.result and _same(scope.block.bindings, block.bindings):
            return block
        return scope.block

    def binding(self, binding: Binding) -> None:
        value = binding.value
        # Most bindings stay as they are, and every pass visits all of them.
        if self.substitution and any(atom in self.substitution for atom in operands(value)):
            self.builder.span = binding.span
            value = with_operands(value, [self.atom(a) for a in operands(value)])
            if isinstance(value, Call) and any(map(_differ_in_type, operands(value), operands(binding.value))):
                value = retyped(value)
        if isinstance(value, (If, FunctionExpr)):
            value = with_blocks(value, tuple(map(self.block, nested_blocks(value))))
        self.builder.span = binding.span
        candidate = binding if value is binding.value else Binding(binding.var, value)
        for rule in self.rules:
            answer = rule(candidate, self.builder)
            if answer is None:
                continue
            if isinstance(answer, ATOMS):
                self.substitution[binding.var] = answer
                return
            candidate = Binding(candidate.var, answer)
            break
        self.bind(binding, candidate)

    def bind(self, old: Binding, new: Binding) -> None:
        if new is old:
            self.builder.bind(old)
            return
        kind = new.value.type
        if kind == old.var.type:
            self.builder.bind(new if new.value is not old.value else old)
            return
        var = Var(old.var.name, kind, old.var.span)
        self.substitution[old.var] = self.builder.bind(Binding(var, new.value))


def _differ_in_type(a: Atom, b: Atom) -> bool:
    return a is not b and a.type != b.type


def _same(new: tuple[Binding, ...], old: tuple[Binding, ...]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def rewrite(function: FunctionExpr, *rules: Rule) -> FunctionExpr:
    """Apply `rules` to every binding, as the module docstring says; `function` itself when nothing changed.

    A replacement may have another type than what it replaces: calls that read it are then typed again, which raises
    what their type rule raises."""
    body = _Rewriter(rules).block(function.body)
    return function if body is function.body else replace(function, body=body)


def by_op(table: Mapping[str, Rule]) -> Rule:
    """The rule that picks from `table` by the name of the operator that a binding calls."""

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        if not isinstance(value, Call) or isinstance(value.op, (Var, GlobalVar)):
            return None
        rewrite = table.get(value.op.name)
        return rewrite(binding, scope) if rewrite else None

    return rule


def rewrite_pass(
    name: str, doc: str, *rules: Rule, looks_for: tuple[str, ...] = (), device: str = "", rounds: int = 4
) -> Pass:
    """A Pass that applies `rules` to every binding until nothing changes, at most `rounds` times. The rest: see
    Pass."""
    limited = tuple(counted(name, rule) for rule in rules)

    def run(function: FunctionExpr) -> FunctionExpr:
        for _ in range(rounds):
            new = rewrite(function, *limited)
            if new is function:
                break
            function = new
        return function

    run.__doc__ = doc
    return function_pass(name, *looks_for, device=device)(run)


def counted(name: str, rule: Rule) -> Rule:
    """A rule of the pass `name` that answers while the context's limit on rewrites is not reached."""

    def run(binding: Binding, scope: Scope) -> Expr | Atom | None:
        now = open_context()
        if now is None:
            return rule(binding, scope)
        if now.stop_after is not None and now.rewrites >= now.stop_after:
            return None
        answer = rule(binding, scope)
        if answer is not None:
            now.rewrites += 1
            if now.stop_after is not None:
                now.last = f"{name}: %{binding.var.name} = {_shown(binding.value)}  ->  {_shown(answer)}"
        return answer

    return run


def _shown(value: Expr | Atom) -> str:
    """The first line of a value's text."""
    return to_text(value, spans=False, data=False).split("\n")[0]
