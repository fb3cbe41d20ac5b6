"""Rewrites before lowering: closures and the branches of conditionals become functions of the module, and the constants
of "main" become parameters, so that compiled code holds no data and the disk cache serves all data.

Functions know symbolic sizes from the shapes of their parameters. Those made here, and the steps of loops, get further
tensors for sizes that they read and that their other parameters do not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from meta.errors import NotSupportedError
from meta.ir.expr import Atom, Binding, Block, Call, Constant, FunctionExpr, GlobalVar, Var, operands
from meta.ir.module import Module
from meta.ir.type import FunctionType
from meta.ir.visitor import block_reads, free_vars, nested_blocks, renamed, with_blocks, with_operands, with_results
from meta.records import record
from meta.tracing.loop_op import LoopOp, with_captured
from meta.vm.lower.loop_calls import loop_calls, step_name
from meta.vm.lower.size_carriers import carriers, sizes_read

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
        self.module = module
        self.functions: dict[str, FunctionExpr] = dict(module.functions)
        self.closures: dict[Var, _Lifted] = {}
        self.params: Sequence[Var] = ()
        """The parameters of the function in progress."""
        self.scope: list[Var] = []
        """The variables that the block in progress may read, parameters first."""
        self.outlined_names: set[str] = set()
        """The functions whose conditionals have been outlined."""

    def fresh(self, name: str) -> str:
        unique, count = name or "closure", 0
        while unique in self.functions:
            count += 1
            unique = f"{name or 'closure'}_{count}"
        return unique

    def body(self, block: Block, params: Sequence[Var], change: Callable[[Block], Block]) -> Block:
        """The body of a function, changed."""
        around = self.params, self.scope
        self.params, self.scope = params, list(params)
        changed = change(block)
        self.params, self.scope = around
        return changed

    def carriers(self, block: Block, given: Sequence[Var]) -> tuple[Var, ...]:
        """The variables that a function with this body needs for the sizes that it reads, besides those given."""
        return carriers(sizes_read(block, self.module.functions), given, self.scope, self.params)

    def block(self, block: Block) -> Block:
        bindings: list[Binding] = []
        outer = len(self.scope)
        for b in block.bindings:
            if isinstance(b.value, FunctionExpr):
                self.lift(b.var, b.value)
                continue
            value = self.call(b.value) if isinstance(b.value, Call) else b.value
            bindings.append(Binding(b.var, with_blocks(value, tuple(map(self.block, nested_blocks(value))))))
            self.scope.append(b.var)
        del self.scope[outer:]
        return Block(tuple(bindings), block.result)

    def outline(self, block: Block) -> Block:
        """The block with its conditionals' branches as calls of functions, and with the sizes that steps read."""
        bindings: list[Binding] = []
        outer = len(self.scope)
        for b in block.bindings:
            value = b.value
            if isinstance(value, Call) and isinstance(value.op, LoopOp):
                value = self.loop(value)
            bindings.append(Binding(b.var, with_blocks(value, tuple(map(self.outlined, nested_blocks(value))))))
            self.scope.append(b.var)
        del self.scope[outer:]
        return Block(tuple(bindings), block.result)

    def outline_function(self, name: str) -> None:
        """Outline the branches in a function of the module, and in the steps that its loops repeat."""
        if name not in self.outlined_names:
            self.outlined_names.add(name)
            function = self.functions[name]
            self.functions[name] = replace(function, body=self.body(function.body, function.params, self.outline))

    def loop(self, call: Call) -> Call:
        """The loop with the sizes that its step reads among the captured values."""
        step = call.args[0]
        assert isinstance(step, GlobalVar)
        name, function = step.name, self.module[step.name]
        missing = self.carriers(function.body, function.params)
        if missing:
            if name in self.outlined_names:  # another loop repeats it too
                name, function = self.fresh(name), renamed(function)
            function = replace(function, params=(*function.params, *map(replace, missing)), name=name)
            self.functions[name] = function
            call = with_captured(call, GlobalVar(name, function.type), missing)
        self.outline_function(name)
        return call

    def outlined(self, block: Block) -> Block:
        """A block that calls a new function with the body `block`: Relax fuses and plans memory by function."""
        read, block = block, self.outline(block)
        if not any(isinstance(b.value, Call) for b in block.bindings):
            return block
        captured = free_vars(block)
        captured += self.carriers(read, captured)
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
        captured += self.carriers(function.body, (*function.params, *captured))
        kinds = (*(p.type for p in function.params), *(v.type for v in captured))
        lifted = _Lifted(GlobalVar(name, FunctionType(kinds, function.body.type)), captured)
        self.closures[var] = lifted
        inner = {v: replace(v) for v in captured}
        body = _renamed(self.body(function.body, (*function.params, *captured), self.block), inner)
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
    steps = dict.fromkeys(step_name(call) for _, call in loop_calls(module))
    for name in (*(n for n in module.functions if n not in steps), *steps):  # loops give sizes to their steps first
        lifter.outline_function(name)
    return Module(lifter.functions)


def lift_closures(module: Module) -> Module:
    """The module without closures. Raises NotSupportedError when one is used other than by calling it."""
    lifter = _Lifter(module)
    for name, function in module.functions.items():
        lifter.functions[name] = replace(function, body=lifter.body(function.body, function.params, lifter.block))
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
