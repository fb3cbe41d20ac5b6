"""Bodies of loops as functions of the module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meta.ir.builder import Module
from meta.ir.expr import Atom, Binding, Block, Call, Expr, FunctionExpr, GlobalVar, Tuple, TupleGetItem, Var
from meta.ir.visitor import block_reads, walk
from meta.passes.manager import Pass
from meta.passes.rewriting import Scope, rewrite
from meta.tracing import loop_op
from meta.tracing.loop_op import LoopOp


def _outline(module: Module) -> Module:
    """Make the body of each loop a function of the module, which the loop names as its first argument, so that passes
    treat it as any other. Stacks that nothing reads, such as values saved for a gradient, are dropped."""
    outlined = _Outlined(dict(module.functions))
    for name, function in module.functions.items():
        outlined.functions[name] = outlined.function(function)
    changed = any(outlined.functions[name] is not f for name, f in module.functions.items())
    return Module(outlined.functions) if changed else module


class _Outlined:
    def __init__(self, functions: dict[str, FunctionExpr]) -> None:
        self.functions = functions

    def function(self, function: FunctionExpr) -> FunctionExpr:
        loops = [b for b in walk(function) if isinstance(b.value, Call) and _has_body(b.value)]
        if not loops:
            return function
        read = _fields_read(function, {b.var for b in loops})
        indices: dict[LoopOp, Mapping[int, int]] = {}

        def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
            value = binding.value
            if isinstance(value, Call) and _has_body(value):
                new, fields = self.loop(value, read[binding.var])
                indices[new.op] = {old: i for i, old in enumerate(fields)}  # type: ignore[index]  # a LoopOp
                return new
            if isinstance(value, TupleGetItem):
                call = scope.definition(value.value)
                places = indices.get(call.op) if isinstance(call, Call) and isinstance(call.op, LoopOp) else None
                return replace(value, index=places[value.index]) if places is not None else None
            return None

        return rewrite(function, rule)

    def loop(self, call: Call, read: set[int] | None) -> tuple[Call, list[int]]:
        """The call of the loop with its body outlined, and the results that it keeps. read: the results that something
        reads."""
        op = call.op
        assert isinstance(op, LoopOp)
        assert op.body is not None
        total = len(op.body.body.results) if read is None else 0
        stacks = sorted(i - op.carried for i in (read if read is not None else range(total)) if i >= op.carried)
        fields = [*range(op.carried), *(op.carried + i for i in stacks)]
        results = op.body.body.results if op.length is not None else op.body.body.results[: op.carried]
        body = replace(op.body, body=Block(op.body.body.bindings, Tuple(tuple(results[i] for i in fields))))
        name = self.fresh(op.body.name or "step")
        self.functions[name] = body  # reserves the name
        body = self.functions[name] = self.function(replace(body, name=name))
        step = GlobalVar(name, body.type)
        new = op.with_body(None, stacks)
        return replace(call, op=new, args=(step, *call.args), type=new.result), fields

    def fresh(self, name: str) -> str:
        unique, count = name, 0
        while unique in self.functions:
            count += 1
            unique = f"{name}_{count}"
        return unique


def _has_body(call: Call) -> bool:
    return isinstance(call.op, LoopOp) and call.op.body is not None


def _fields_read(function: FunctionExpr, loops: set[Var]) -> dict[Var, set[int] | None]:
    """For each loop the results that are read; None where the tuple itself is."""
    fields: dict[Var, set[int] | None] = {var: set() for var in loops}
    projections = 0
    for binding in walk(function):
        value = binding.value
        if isinstance(value, TupleGetItem) and value.value in loops:
            projections += 1
            fields[value.value].add(value.index)  # type: ignore[index, union-attr]
    reads = [a for a in block_reads(function.body) if a in loops]
    if len(reads) > projections:
        counts = {v: sum(1 for r in reads if r is v) for v in loops}
        for var in loops:
            gets = [b for b in walk(function) if isinstance(b.value, TupleGetItem) and b.value.value is var]
            if counts[var] > len(gets):
                fields[var] = None
    return fields


outline_loops = Pass("outline_loops", _outline, _outline.__doc__ or "", looks_for=(loop_op.NAMESPACE,))
