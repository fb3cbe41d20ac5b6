"""The branches of conditionals as functions of the module, because Relax fuses and plans memory by function.

Functions know symbolic sizes from the shapes of their parameters. Branches, and the steps of loops, get further tensors
for sizes that they read and that their other parameters do not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from meta.ir.builder import Module
from meta.ir.expr import Binding, Block, Call, FunctionExpr, GlobalVar, Var
from meta.ir.visitor import free_vars, nested_blocks, renamed, walk, with_blocks
from meta.passes.carry_sizes import SizeScope
from meta.passes.lift_closures import unused_name
from meta.passes.manager import Pass
from meta.tracing.loop_op import NAMESPACE, LoopOp, with_captured

BRANCH: Final = "branch"
"""Key of `FunctionExpr.attrs`: the function is a branch of a conditional, its only caller."""


def _outline(module: Module) -> Module:
    """The module with a function for each branch of a conditional that calls anything; closures have been lifted."""
    outliner = _Outliner(module)
    steps = dict.fromkeys(_step(call).name for f in module.functions.values() for call in _loops(f))
    for name in (*(n for n in module.functions if n not in steps), *steps):  # loops give sizes to their steps first
        outliner.outline(name)
    return Module(outliner.functions)


def _loops(function: FunctionExpr) -> list[Call]:
    return [b.value for b in walk(function) if isinstance(b.value, Call) and isinstance(b.value.op, LoopOp)]


def _step(loop: Call) -> GlobalVar:
    """The function that a loop repeats."""
    step = loop.args[0]
    assert isinstance(step, GlobalVar)
    return step


class _Outliner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.functions = dict(module.functions)
        self.scope = SizeScope(module.functions)
        self.done: set[str] = set()

    def outline(self, name: str) -> None:
        """Outline the branches in a function of the module, and in the steps that its loops repeat."""
        if name not in self.done:
            self.done.add(name)
            self.functions[name] = self.scope.changed(self.functions[name], self.block)

    def block(self, block: Block) -> Block:
        bindings: list[Binding] = []
        with self.scope.block() as variables:
            for b in block.bindings:
                value = b.value
                if isinstance(value, Call) and isinstance(value.op, LoopOp):
                    value = self.loop(value)
                bindings.append(Binding(b.var, with_blocks(value, tuple(map(self.branch, nested_blocks(value))))))
                variables.append(b.var)
        return Block(tuple(bindings), block.result)

    def loop(self, call: Call) -> Call:
        """The loop with the sizes that its step reads among the captured values."""
        name = _step(call).name
        function = self.module[name]
        missing = self.scope.carriers(function.body, function.params)
        if missing:
            if name in self.done:  # another loop repeats it too
                name, function = unused_name(name, self.functions), renamed(function)
            function = replace(function, params=(*function.params, *map(replace, missing)), name=name)
            self.functions[name] = function
            call = with_captured(call, GlobalVar(name, function.type), missing)
        self.outline(name)
        return call

    def branch(self, block: Block) -> Block:
        read, block = block, self.block(block)
        if not any(isinstance(b.value, Call) for b in block.bindings):
            return block
        captured = free_vars(block)
        captured += self.scope.carriers(read, captured)
        name = unused_name("branch", self.functions)
        function = self.functions[name] = renamed(FunctionExpr(captured, block, {BRANCH: True}, name))
        result = Var("", block.type)
        return Block((Binding(result, Call(GlobalVar(name, function.type), captured, block.type)),), result)


outline_branches = Pass("outline_branches", _outline, _outline.__doc__ or "", looks_for=("if", NAMESPACE))
