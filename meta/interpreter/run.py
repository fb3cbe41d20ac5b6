"""Run IR op by op, with the same operator calls (and the same tape) as eager code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.errors import ArgumentError, IRError, message
from meta.interpreter.invoke import invoke, state
from meta.ir.expr import Atom, Binding, Block, Call, Constant, Function, GlobalVar, If, Tuple, TupleGetItem, Var
from meta.ir.module import Module
from meta.ir.type import TensorType, Type
from meta.ndarray import NDArray, asarray
from meta.op.dispatch import with_dialect

Environment = dict[Var, Any]


class Closure:
    """A function value: the function and the variables around it."""

    __slots__ = ("environment", "function")

    def __init__(self, function: Function, environment: Mapping[Var, Any]) -> None:
        self.function = function
        self.environment = environment


def run(module: Module | Function, *inputs: Any, entry: str = "main") -> Any:
    """Execute a program on arrays (anything `meta.asarray` takes) and return its result: an array or nested tuples.

    Calls that carry a dialect (after dispatch) run on it. Recursion depth is that of the program.
    Raises ArgumentError when the inputs do not fit the parameters."""
    program = module if isinstance(module, Module) else Module({"main": module})
    function = program[entry]
    arrays = [x if isinstance(x, (NDArray, tuple, Closure)) else asarray(x) for x in inputs]
    check_inputs(entry, [p.name for p in function.params], [p.type for p in function.params], arrays)
    return _Interpreter(program).call(function, arrays, {})


def check_inputs(name: str, names: Sequence[str], types: Sequence[Type], arrays: Sequence[Any]) -> None:
    """Raise ArgumentError unless each array has the type of its parameter (symbolic sizes fit any)."""
    if len(arrays) != len(names):
        raise ArgumentError(message(name, f"{len(arrays)} inputs", f"takes {len(names)}: {', '.join(names)}"))
    for parameter, kind, array in zip(names, types, arrays, strict=True):
        if isinstance(kind, TensorType) and not (isinstance(array, NDArray) and _fits(kind, array.type)):
            given = array.type if isinstance(array, NDArray) else type(array).__name__
            raise ArgumentError(message(name, f"input '{parameter}' is {given!r}", f"takes {kind!r}"))


def _fits(kind: TensorType, given: TensorType) -> bool:
    if kind is given:
        return True
    same = kind.dtype == given.dtype and kind.ndim == given.ndim and kind.device is given.device
    return same and all(a == b or not isinstance(a, int) for a, b in zip(kind.shape, given.shape, strict=True))


class _Interpreter:
    """Evaluates blocks of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def call(self, function: Function, args: Sequence[Any], around: Mapping[Var, Any]) -> Any:
        environment: Environment = dict(around)
        environment.update(zip(function.params, args, strict=True))
        return self.block(function.body, environment)

    def block(self, block: Block, environment: Environment) -> Any:
        for binding in block.bindings:
            environment[binding.var] = self.evaluate(binding, environment)
        result = block.result
        if isinstance(result, Tuple):
            return tuple(self.atom(f, environment) for f in result.fields)
        return self.atom(result, environment)

    def evaluate(self, binding: Binding, environment: Environment) -> Any:
        value = binding.value
        match value:
            case Call():
                return self.apply(value, environment)
            case Tuple():
                return tuple(self.atom(f, environment) for f in value.fields)
            case TupleGetItem():
                return self.atom(value.value, environment)[value.index]
            case If():
                chosen = value.then if self.atom(value.cond, environment).item() else value.orelse
                return self.block(chosen, dict(environment))
            case Function():
                closure = Closure(value, environment)
                return closure
        raise IRError(message("interpreter", f"cannot evaluate {type(value).__name__}"))

    def apply(self, call: Call, environment: Environment) -> Any:
        args = tuple(self.argument(a, environment) for a in call.args)
        if not isinstance(call.op, (Var, GlobalVar)):
            known = state(call.op)  # type: ignore[arg-type]  # programs hold registered operators
            if call.dialect is None:
                return invoke(known, *args)
            with with_dialect(call.dialect):
                return invoke(known, *args)
        target = self.atom(call.op, environment)
        if isinstance(target, Closure):
            around = dict(target.environment)
            if isinstance(call.op, Var):
                around[call.op] = target
            return self.call(target.function, args, around)
        return self.call(target, args, {})

    def argument(self, arg: Any, environment: Environment) -> Any:
        if isinstance(arg, (Var, Constant, GlobalVar)):
            return self.atom(arg, environment)
        return tuple(self.argument(a, environment) for a in arg) if isinstance(arg, tuple) else arg  # pyright: ignore[reportUnknownVariableType]

    def atom(self, atom: Atom, environment: Environment) -> Any:
        if isinstance(atom, Var):
            return environment[atom]
        if isinstance(atom, GlobalVar):
            return self.module[atom.name]
        return atom.value if isinstance(atom.value, NDArray) else asarray(atom.value)
