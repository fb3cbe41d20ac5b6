"""Closures as functions of the module, which take the variables that they capture as further parameters, and tensors
that have the sizes which they read."""

from __future__ import annotations

from dataclasses import replace

from meta.errors import NotSupportedError
from meta.ir.builder import Module
from meta.ir.expr import Binding, Block, Call, FunctionExpr, GlobalVar, Var
from meta.ir.type import FunctionType
from meta.ir.visitor import block_reads, free_vars, nested_blocks, renamed, with_blocks
from meta.passes.carry_sizes import SizeScope
from meta.passes.manager import Pass
from meta.records import record


def _lift(module: Module) -> Module:
    """The module without closures. Raises NotSupportedError when one is used other than by calling it."""
    lifter = _Lifter(module)
    for name, function in module.functions.items():
        lifter.functions[name] = lifter.scope.changed(function, lifter.block)
    for name, function in lifter.functions.items():
        _check_first_order(name, function)
    return Module(lifter.functions)


@record
class _Lifted:
    """A lifted closure: its global name, and the variables that calls pass after the arguments."""

    function: GlobalVar
    captured: tuple[Var, ...]


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.functions: dict[str, FunctionExpr] = dict(module.functions)
        self.closures: dict[Var, _Lifted] = {}
        self.scope = SizeScope(module.functions)

    def block(self, block: Block) -> Block:
        bindings: list[Binding] = []
        with self.scope.block() as variables:
            for b in block.bindings:
                if isinstance(b.value, FunctionExpr):
                    self.lift(b.var, b.value)
                    continue
                value = self.call(b.value) if isinstance(b.value, Call) else b.value
                bindings.append(Binding(b.var, with_blocks(value, tuple(map(self.block, nested_blocks(value))))))
                variables.append(b.var)
        return Block(tuple(bindings), block.result)

    def call(self, call: Call) -> Call:
        lifted = self.closures.get(call.op) if isinstance(call.op, Var) else None
        if lifted is None:
            return call
        return replace(call, op=lifted.function, args=(*call.args, *lifted.captured))

    def lift(self, var: Var, function: FunctionExpr) -> None:
        name = unused_name(function.name or var.name or "closure", self.functions)
        self.functions[name] = function
        captured = tuple(v for v in self.captured(function) if v is not var)
        captured += self.scope.carriers(function.body, (*function.params, *captured))
        kinds = (*(p.type for p in function.params), *(v.type for v in captured))
        self.closures[var] = _Lifted(GlobalVar(name, FunctionType(kinds, function.body.type)), captured)
        params = (*function.params, *captured)
        self.functions[name] = renamed(self.scope.changed(replace(function, params=params), self.block))

    def captured(self, function: FunctionExpr) -> tuple[Var, ...]:
        """The free variables; a closure that is already lifted is replaced by its own free variables."""
        out: dict[Var, None] = {}
        for v in free_vars(function):
            lifted = self.closures.get(v)
            out.update(dict.fromkeys(lifted.captured if lifted else (v,)))
        return tuple(out)


def unused_name(name: str, functions: dict[str, FunctionExpr]) -> str:
    """`name`, with a number if a function has it."""
    unique, count = name, 0
    while unique in functions:
        count += 1
        unique = f"{name}_{count}"
    return unique


def _check_first_order(name: str, function: FunctionExpr) -> None:
    for atom in block_reads(function.body):
        if isinstance(atom, Var) and isinstance(atom.type, FunctionType):
            raise NotSupportedError(
                "vm",
                f"'{name}' uses the function '{atom.name}' as a value",
                "calls of functions only",
                "call it where it is defined",
            )


lift_closures = Pass("lift_closures", _lift, _lift.__doc__ or "", looks_for=("fn", ""))
