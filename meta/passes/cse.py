"""Redundant bindings: equal ones are computed once (`cse`), and ones that nothing reads are dropped (`dce`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from meta.ir.analysis import reachable
from meta.ir.builder import Module
from meta.ir.expr import (
    ATOMS,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    is_atom_list,
    operands,
)
from meta.ir.printer import attr_text, encode_inline
from meta.ir.visitor import nested_blocks, walk, with_blocks
from meta.op.registry import Op, get
from meta.passes.manager import Pass, function_pass
from meta.passes.rewriting import Scope, counted, rewrite


@function_pass("cse")
def cse(function: FunctionExpr) -> FunctionExpr:
    """Compute once what is computed twice from the same values, in one block or in blocks around it. Random operators
    are functions of their key, so two draws are never merged.

    A call of an operator with `Op.recorded_as` becomes the first result of that operator if the program, in a gradient,
    calls it with the same arguments."""
    seen: dict[Hashable, Var] = {}
    keys = {value_key(binding.value) for binding in walk(function)}

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        key = value_key(binding.value)
        if key is None:
            return None
        earlier = defined(key, scope)
        if earlier is not None:
            return earlier
        seen[key] = binding.var
        recorded = _recorded(binding.value)
        if recorded is None or value_key(recorded) not in keys:
            return None
        results = defined(value_key(recorded), scope) or scope.emit(recorded)
        seen[value_key(recorded)] = results
        return TupleGetItem(results, 0, binding.span)

    def defined(key: Hashable, scope: Scope) -> Var | None:
        var = seen.get(key)
        return var if scope.definition(var) is not None else None  # else its block has ended

    return rewrite(function, counted("cse", rule))


def _recorded(value: Expr) -> Call | None:
    """The call that returns what this one does and what its gradient reads."""
    if not isinstance(value, Call) or not isinstance(value.op, Op) or not value.op.recorded_as:
        return None
    op = get(value.op.recorded_as)
    return replace(value, op=op, type=op.infer(arg_types(value.args)))


def value_key(value: Expr) -> Hashable | None:
    """A key that two values share when they compute the same from the same variables; None for a value with nested
    blocks. Large constants are equal only when they are one object."""
    match value:
        case Call():
            op = _arg_key(value.callee) if value.callee is not None else (value.op, value.dialect)
            return op, tuple(map(_arg_key, value.args)), attr_text(value.attrs)
        case Tuple():
            return "tuple", tuple(map(_arg_key, value.fields))
        case TupleGetItem():
            return "item", _arg_key(value.value), value.index
        case If() | FunctionExpr():
            return None


def _arg_key(arg: Any) -> Hashable:
    if isinstance(arg, Constant):
        return encode_inline(arg.value, arg.type) or arg
    if isinstance(arg, GlobalVar):
        return "@", arg.name
    if isinstance(arg, ATOMS):
        return arg
    return tuple(map(_arg_key, arg)) if is_atom_list(arg) else attr_text(arg)


# --- dead code -------------------------------------------------------------------------------------------------------


def _dce(module: Module) -> Module:
    """Drop bindings that nothing reads, and functions that main does not need, in one sweep from the end. Operators
    have no effects in this IR: writes are results (MUTATES)."""
    live = reachable(module) if "main" in module else frozenset(module)
    new = {name: _without_dead(f) for name, f in module.functions.items() if name in live}
    same = len(new) == len(module.functions) and all(new[n] is f for n, f in module.functions.items())
    return module if same else Module(new)


def _without_dead(function: FunctionExpr) -> FunctionExpr:
    body = live_block(function.body, set())
    return function if body is function.body else replace(function, body=body)


def live_block(block: Block, live: set[Var]) -> Block:
    """`block` without dead bindings; adds the variables that it reads to `live`."""
    live.update(a for a in block.results if isinstance(a, Var))
    bindings: list[Binding] = []
    for binding in reversed(block.bindings):
        if binding.var not in live:
            continue
        value = with_blocks(binding.value, tuple(live_block(inner, live) for inner in nested_blocks(binding.value)))
        live.update(a for a in operands(value) if isinstance(a, Var))
        bindings.append(binding if value is binding.value else Binding(binding.var, value))
    bindings.reverse()
    same = len(bindings) == len(block.bindings) and all(a is b for a, b in zip(bindings, block.bindings, strict=True))
    return block if same else Block(tuple(bindings), block.result)


dce = Pass("dce", _dce, _dce.__doc__ or "")
