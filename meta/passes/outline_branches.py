"""The branches of conditionals as functions of the module, because Relax fuses and plans memory by function."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from meta.ir.expr import Binding, Block, Call, FunctionExpr, GlobalVar, Var
from meta.ir.module import Module
from meta.ir.visitor import free_vars, nested_blocks, renamed, with_blocks
from meta.passes.lift_closures import unused_name
from meta.passes.manager import Pass

BRANCH: Final = "branch"
"""Key of `FunctionExpr.attrs`: the function is a branch of a conditional, its only caller."""


def _outline(module: Module) -> Module:
    """The module with a function for each branch of a conditional that calls anything; closures have been lifted."""
    functions = dict(module.functions)

    def outline(block: Block) -> Block:
        bindings = [
            Binding(b.var, with_blocks(b.value, tuple(branch(outline(inner)) for inner in nested_blocks(b.value))))
            for b in block.bindings
        ]
        return Block(tuple(bindings), block.result)

    def branch(block: Block) -> Block:
        if not any(isinstance(b.value, Call) for b in block.bindings):
            return block
        captured = free_vars(block)
        name = unused_name("branch", functions)
        function = functions[name] = renamed(FunctionExpr(captured, block, {BRANCH: True}, name))
        result = Var("", block.type)
        return Block((Binding(result, Call(GlobalVar(name, function.type), captured, block.type)),), result)

    for name, function in module.functions.items():
        functions[name] = replace(function, body=outline(function.body))
    return Module(functions)


outline_branches = Pass("outline_branches", _outline, _outline.__doc__ or "", looks_for=("if",))
