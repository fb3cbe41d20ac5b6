"""Rewrites before lowering: closures and the branches of conditionals become functions of the module, and the constants
of "main" become parameters, so that compiled code holds no data and the disk cache serves all data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from meta.errors import NotSupportedError
from meta.ir.expr import Atom, Binding, Block, Call, Constant, FunctionExpr, GlobalVar, Var, operands
from meta.ir.module import Module
from meta.ir.type import FunctionType
from meta.ir.visitor import block_reads, free_vars, nested_blocks, with_blocks, with_operands, with_results
from meta.records import record

BRANCH = "branch"
"""Key of `FunctionExpr.attrs`: the function is a branch of a conditional, its only caller."""


def constants_to_params(main: FunctionExpr) -> tuple[FunctionExpr, tuple[Constant, ...]]:
    """`main` with a further parameter for each of its constants, and those constants in order."""
    params: dict[Constant, Var] = {}

    def atom(a: Atom) -> Atom:
        if not isinstance(a, Constant):
            return a
        return params.setdefault(a, Var(f"const{len(params)}", a.type, a.span))

    body = _map_block(main.body, atom)
    return replace(main, params=(*main.params, *params.values()), body=body), tuple(params)


def _map_block(block: Block, change: Callable[[Atom], Atom]) -> Block:
    bindings = tuple(
        Binding(b.var, with_blocks(new, tuple(_map_block(inner, change) for inner in nested_blocks(new))))
        for b in block.bindings
        for new in [with_operands(b.value, [change(a) for a in operands(b.value)])]
    )
    return Block(bindings, with_results(block, [change(a) for a in block.results]))


def _renamed(block: Block, names: Mapping[Var, Var]) -> Block:
    return _map_block(block, lambda a: names.get(a, a) if isinstance(a, Var) else a)


@record
class _Lifted:
    """A lifted closure: its global name, and the variables that calls pass after the arguments."""

    function: GlobalVar
    captured: tuple[Var, ...]


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.functions: dict[str, FunctionExpr] = dict(module.functions)
        self.closures: dict[Var, _Lifted] = {}

    def fresh(self, name: str) -> str:
        unique, count = name or "closure", 0
        while unique in self.functions:
            count += 1
            unique = f"{name or 'closure'}_{count}"
        return unique

    def block(self, block: Block) -> Block:
        bindings: list[Binding] = []
        for b in block.bindings:
            if isinstance(b.value, FunctionExpr):
                self.lift(b.var, b.value)
                continue
            value = self.call(b.value) if isinstance(b.value, Call) else b.value
            bindings.append(Binding(b.var, with_blocks(value, tuple(map(self.block, nested_blocks(value))))))
        return Block(tuple(bindings), block.result)

    def outline(self, block: Block) -> Block:
        """The block with its conditionals' branches as calls of functions."""
        bindings = [
            Binding(b.var, with_blocks(b.value, tuple(self.outlined(self.outline(i)) for i in nested_blocks(b.value))))
            for b in block.bindings
        ]
        return Block(tuple(bindings), block.result)

    def outlined(self, block: Block) -> Block:
        """A block that calls a new function with the body `block`: Relax fuses and plans memory by function."""
        if not any(isinstance(b.value, Call) for b in block.bindings):
            return block
        captured = free_vars(block)
        inner = {v: replace(v) for v in captured}
        name = self.fresh("branch")
        function = FunctionExpr(tuple(inner.values()), _renamed(block, inner), {BRANCH: True}, name)
        self.functions[name] = function
        result = Var("", block.type)
        call = Call(GlobalVar(name, function.type), captured, block.type)
        return Block((Binding(result, call),), result)

    def call(self, call: Call) -> Call:
        lifted = self.closures.get(call.op) if isinstance(call.op, Var) else None
        if lifted is None:
            return call
        return replace(call, op=lifted.function, args=(*call.args, *lifted.captured))

    def lift(self, var: Var, function: FunctionExpr) -> None:
        name = self.fresh(function.name or var.name)
        self.functions[name] = function
        captured = tuple(v for v in self._captured(function) if v is not var)
        kinds = (*(p.type for p in function.params), *(v.type for v in captured))
        lifted = _Lifted(GlobalVar(name, FunctionType(kinds, function.body.type)), captured)
        self.closures[var] = lifted
        inner = {v: replace(v) for v in captured}
        body = _renamed(self.block(function.body), inner)
        self.functions[name] = replace(function, params=(*function.params, *inner.values()), body=body)

    def _captured(self, function: FunctionExpr) -> tuple[Var, ...]:
        """The free variables, with those of already lifted closures in place of the closures."""
        out: dict[Var, None] = {}
        for v in free_vars(function):
            lifted = self.closures.get(v)
            out.update(dict.fromkeys(lifted.captured if lifted else (v,)))
        return tuple(out)


def outline_branches(module: Module) -> Module:
    """The module with a function for each branch of a conditional that calls anything; closures have been lifted."""
    lifter = _Lifter(module)
    for name, function in module.functions.items():
        lifter.functions[name] = replace(function, body=lifter.outline(function.body))
    return Module(lifter.functions)


def lift_closures(module: Module) -> Module:
    """The module without closures. Raises NotSupportedError when one is used other than by calling it."""
    lifter = _Lifter(module)
    for name, function in module.functions.items():
        lifter.functions[name] = replace(function, body=lifter.block(function.body))
    out = Module(lifter.functions)
    for name, function in out.functions.items():
        _check_first_order(name, function)
    return out


def _check_first_order(name: str, function: FunctionExpr) -> None:
    for atom in block_reads(function.body):
        if isinstance(atom, Var) and isinstance(atom.type, FunctionType):
            raise NotSupportedError(
                "vm",
                f"'{name}' uses the function '{atom.name}' as a value",
                "calls of functions only",
                "call it where it is defined",
            )
