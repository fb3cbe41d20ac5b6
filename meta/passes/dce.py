"""Dead code elimination."""

from __future__ import annotations

from dataclasses import replace

from meta.ir.analysis import reachable
from meta.ir.expr import Binding, Block, FunctionExpr, Var, operands
from meta.ir.module import Module
from meta.ir.visitor import nested_blocks, with_blocks
from meta.passes.manager import Pass


def _dce(module: Module) -> Module:
    """Drop bindings that nothing reads, and functions that main does not need, in one sweep from the end. Operators
    have no effects in this IR: writes are results (MUTATES)."""
    live = reachable(module) if "main" in module else frozenset(module)
    new = {name: _function(f) for name, f in module.functions.items() if name in live}
    same = len(new) == len(module.functions) and all(new[n] is f for n, f in module.functions.items())
    return module if same else Module(new)


def _function(function: FunctionExpr) -> FunctionExpr:
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
