"""Tail recursion as loops: a function whose last action is to call itself becomes a step function, which the virtual
machine runs again and again.

    def f(x, n) { if n > 0 { f(x * 2, n - 1) } else { x } }

becomes

    def f(x, n) { f_step(x, n, zeros)[-1] }                 # the call carries LOOP
    def f_step(x, n, last) { if n > 0 { (True, x * 2, n - 1, last) } else { (False, x, n, x) } }

so that recursion takes no stack, as in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meta import dim
from meta.device import Device
from meta.errors import IRError
from meta.ir.builder import Module
from meta.ir.expr import Atom, Binding, Block, Call, Constant, FunctionExpr, GlobalVar, If, Tuple, TupleGetItem, Var
from meta.ir.type import FunctionType, TensorType, TupleType, Type, flat_types, leaf_types, tensor_type
from meta.ir.visitor import renamed
from meta.op.registry import get
from meta.passes.manager import Pass

LOOP = "loop"
"""Key of `Call.attrs`: the call repeats its function on the results, until the first of them is False."""


def _loops(module: Module) -> Module:
    """The module with a loop in place of each function other than "main" that calls itself last. Arguments have
    exactly the types of the parameters, as in every call. Other recursive calls stay."""
    functions: dict[str, FunctionExpr] = {}
    for name, function in module.functions.items():
        changed = None if name == "main" else _looped(name, function, module)
        functions.update(changed or {name: function})
    return Module(functions)


def _looped(name: str, function: FunctionExpr, module: Module) -> dict[str, FunctionExpr] | None:
    """The function that loops and its step; None for functions that cannot be put so."""
    types = flat_types([function.body.type])
    if len(types) != len(leaf_types(function.body.type)) or not types or not _has_tail_call(function.body, name):
        return None
    size_names = {n for t in flat_types([p.type for p in function.params]) for size in t.shape for n in dim.names(size)}
    if any(not dim.names(size) <= size_names for t in types for size in t.shape):
        return None
    step_name = f"{name}_step"
    while step_name in module:
        step_name += "_"
    step = _Step(name, renamed(function), types[0].device).function()
    return {name: _driver(function, step_name, step), step_name: replace(step, name=step_name)}


def _tail_call(block: Block, name: str) -> Call | None:
    """The call of the function itself that is the last thing a block does."""
    value = block.bindings[-1].value if block.bindings and block.result is block.bindings[-1].var else None
    itself = isinstance(value, Call) and isinstance(value.op, GlobalVar) and value.op.name == name
    return value if isinstance(value, Call) and itself else None


def _branches(block: Block) -> If | None:
    """The conditional whose result is the block's result."""
    value = block.bindings[-1].value if block.bindings and block.result is block.bindings[-1].var else None
    return value if isinstance(value, If) else None


def _has_tail_call(block: Block, name: str) -> bool:
    branches = _branches(block)
    if branches is not None:
        return any(_has_tail_call(inner, name) for inner in (branches.then, branches.orelse))
    return _tail_call(block, name) is not None


class _Step:
    """The step of one function, whose variables are its own."""

    def __init__(self, name: str, function: FunctionExpr, device: Device) -> None:
        self.name = name
        self.old = function
        self.last = Var("last", function.body.type)
        self.flag = tensor_type((), "bool", device)

    def function(self) -> FunctionExpr:
        params = (*self.old.params, self.last)
        return FunctionExpr(params, self.block(self.old.body), self.old.attrs, span=self.old.span)

    def block(self, block: Block) -> Block:
        branches = _branches(block)
        if branches is not None and _has_tail_call(block, self.name):
            value = replace(branches, then=self.block(branches.then), orelse=self.block(branches.orelse))
            result = Var("", value.type)
            return Block((*block.bindings[:-1], Binding(result, value)), result)
        call = _tail_call(block, self.name)
        if call is not None:
            return Block(block.bindings[:-1], Tuple((self.constant(True), *call.args, self.last)))
        bindings, result = block.bindings, block.result
        if isinstance(result, Tuple):
            value = Var("", result.type)
            bindings, result = (*bindings, Binding(value, result)), value
        return Block(bindings, Tuple((self.constant(False), *self.old.params, result)))

    def constant(self, value: bool) -> Constant:
        import numpy as np

        return Constant(np.array(value), self.flag)


def _driver(function: FunctionExpr, step_name: str, step: FunctionExpr) -> FunctionExpr:
    """A function that starts the loop and takes its result."""
    params = tuple(replace(p) for p in function.params)
    bindings: list[Binding] = []

    def bind(value: Call | Tuple | TupleGetItem) -> Var:
        bindings.append(Binding(Var("", value.type), value))
        return bindings[-1].var

    last = _zeros(function.body.type, bind)
    kind = FunctionType(tuple(p.type for p in step.params), step.body.type)
    loop = bind(Call(GlobalVar(step_name, kind), (*params, last), step.body.type, function.span, {LOOP: True}))
    result = bind(TupleGetItem(loop, len(params) + 1))
    return FunctionExpr(params, Block(tuple(bindings), result), function.attrs, function.name, function.span)


def _zeros(kind: Type, bind: Callable[[Call | Tuple], Var]) -> Atom:
    """A value of a type: the result before there is one."""
    match kind:
        case TensorType():
            return bind(Call(get("zeros"), (kind.shape, kind.dtype, kind.device), kind))
        case TupleType():
            return bind(Tuple(tuple(_zeros(field, bind) for field in kind.fields)))
        case _:
            raise IRError("vm", f"a loop returns a value of type {kind!r}", "tensors and tuples of them")


tail_loops = Pass("tail_loops", _loops, _loops.__doc__ or "", looks_for=("",))
