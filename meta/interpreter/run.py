"""Run IR op by op, with the same operator calls (and the same tape) as eager code."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from meta.dim import SymDim
from meta.dim import evaluate as evaluate_dim
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray, asarray, copy_of
from meta.errors import AnomalyError, ArgumentError, IRError
from meta.ir.analysis import dying
from meta.ir.builder import Module
from meta.ir.expr import (
    ATOMS,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    FunctionExpr,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
)
from meta.ir.printer import to_array
from meta.ir.type import Sizes, Type
from meta.ir.verifier import verify_once
from meta.ir.visitor import free_vars
from meta.modes import modes
from meta.op.dispatch import with_dialect
from meta.op.registry import Op
from meta.records import mutable, record
from meta.tracing.control_flow import iterate
from meta.tracing.function_op import FunctionOp
from meta.tracing.loop_op import LoopOp
from meta.tracing.program import check_inputs
from meta.tree import is_sequence, leaves_of, with_leaves

MAX_CALLS = 100_000
"""Calls of functions in progress at one time. A call that is the last thing a function does is not in progress."""


@record(eq=False)
class Closure:
    """A function value and the values that its body captures."""

    function: FunctionExpr
    captured: Mapping[Var, Any]

    @property
    def type(self) -> Type:
        return self.function.type


def run(module: Module | FunctionExpr, *inputs: object, entry: str = "main") -> Any:
    """Execute a program on arrays (anything `meta.asarray` takes) and return its result: an array or nested tuples.

    Gradients are recorded as in eager code. Nothing is written in place: results that replace parameters (MUTATES) are
    returned like the others. Calls that carry a dialect (after dispatch) run on it.
    Raises ArgumentError when the inputs do not fit the parameters, IRError for programs that are not well-formed, and
    when calls nest deeper than MAX_CALLS."""
    program = module if isinstance(module, Module) else Module({entry: module})
    verify_once(program)
    function = program[entry]
    names = [p.name for p in function.params]
    if len(inputs) != len(names):
        raise ArgumentError(entry, f"{len(inputs)} inputs", f"{len(names)}: {', '.join(names)}")
    values: list[Any] = [*with_leaves(inputs, [_value(x) for x in leaves_of(inputs)])]
    with _plain():
        return _Interpreter(program).run(function, values, entry)


def evaluate(value: Call | Constant, values: Mapping[Atom, Any]) -> Any:
    """The value of a constant or of one operator call, whose operands other than constants are in `values`.

    No gradient is recorded, and no kernel is built: the reference dialect computes it. Raises DeviceError and
    DispatchError where that is not possible."""
    interpreter = _Interpreter(Module())
    frame = _Frame(Block((), Tuple(())), {k: v for k, v in values.items() if isinstance(k, Var)}, {})
    with _plain(record=False), with_dialect("reference"):
        return interpreter.atom(value, frame) if isinstance(value, Constant) else interpreter.apply(value, frame)


def _value(x: object) -> Any:
    if isinstance(x, FunctionExpr):
        return Closure(x, {})
    return x if isinstance(x, (NDArray, Closure)) else asarray(x)


@contextmanager
def _plain(record: bool = True) -> Generator[None, None, None]:
    """Without autocast, which is a matter of passes for programs, and outside of any trace."""
    before = modes.autocast, modes.trace, modes.emit, modes.transform, modes.grad_enabled
    modes.autocast = modes.trace = modes.emit = modes.transform = None
    modes.grad_enabled = before[4] and record
    try:
        yield
    finally:
        modes.autocast, modes.trace, modes.emit, modes.transform, modes.grad_enabled = before


@mutable(eq=False)
class _Frame:
    """A block being evaluated. values: the values of the function around it, shared with its other blocks.  sizes:
    symbolic sizes of the call.  ends_call: whether its result is the result of a call (and not of a conditional)."""

    block: Block
    values: dict[Var, Any]
    sizes: Sizes
    ends_call: bool = True
    position: int = 0
    dead: tuple[tuple[Var, ...], ...] = ()


class _Interpreter:
    """Evaluates blocks of one module on an explicit stack, so that recursion is as deep as memory allows."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.stack: list[_Frame] = []
        self.calls = 0
        self.dead: dict[Block, tuple[tuple[Var, ...], ...]] = {}
        self.constants: dict[Constant, Any] = {}

    def run(self, function: FunctionExpr, args: Sequence[Any], name: str) -> Any:
        self.enter(function, args, {}, name)
        while True:
            frame = self.stack[-1]
            if frame.position < len(frame.block.bindings):
                self.step(frame)
                continue
            result = self.result(frame.block, frame)
            self.leave()
            if not self.stack:
                return result
            self.store(self.stack[-1], result)

    def enter(self, function: FunctionExpr, args: Sequence[Any], captured: Mapping[Var, Any], name: str) -> None:
        """Begin a call. Frames that only return the result of this call are dropped first."""
        params = function.params
        sizes = check_inputs(name, [p.name for p in params], [p.type for p in params], args)
        while self.stack and self.is_done(self.stack[-1]):
            self.leave()
        if self.calls >= MAX_CALLS:
            raise IRError(
                "interpreter",
                f"calls nest deeper than {MAX_CALLS}",
                "programs that end",
                "let the recursive call be the last thing that the function does",
            )
        self.calls += 1
        self.push(_Frame(function.body, {**captured, **dict(zip(params, args, strict=True))}, sizes))

    def push(self, frame: _Frame) -> None:
        if frame.block not in self.dead:
            self.dead[frame.block] = dying(frame.block)
        frame.dead = self.dead[frame.block]
        self.stack.append(frame)

    def leave(self) -> None:
        self.calls -= self.stack.pop().ends_call

    def is_done(self, frame: _Frame) -> bool:
        """Whether the value of the current binding is all that the block returns."""
        bindings = frame.block.bindings
        return frame.position == len(bindings) - 1 and frame.block.result is bindings[frame.position].var

    def step(self, frame: _Frame) -> None:
        """Evaluate a binding, or begin to."""
        value = frame.block.bindings[frame.position].value
        match value:
            case Call() if isinstance(value.op, (Var, GlobalVar)):
                target = self.atom(value.op, frame)
                args = [self.argument(a, frame) for a in value.args]
                captured = {**target.captured, value.op: target} if isinstance(value.op, Var) else target.captured
                self.enter(target.function, args, captured, value.op.name or "function")
            case Call():
                try:
                    self.store(frame, self.apply(value, frame))
                except AnomalyError as error:
                    error.location = str(value.span or error.location)
                    raise
            case Tuple():
                self.store(frame, tuple(self.atom(f, frame) for f in value.fields))
            case TupleGetItem():
                self.store(frame, self.atom(value.value, frame)[value.index])
            case If():
                branch = value.then if self.atom(value.cond, frame).item() else value.orelse
                self.push(_Frame(branch, frame.values, frame.sizes, ends_call=False))
            case FunctionExpr():
                self.store(frame, self.closure(frame.block.bindings[frame.position], value, frame))

    def store(self, frame: _Frame, value: object) -> None:
        """Bind the value of the current binding, forget what is not read any more, and go on."""
        frame.values[frame.block.bindings[frame.position].var] = value
        for var in frame.dead[frame.position]:
            del frame.values[var]
        frame.position += 1

    def closure(self, binding: Binding, function: FunctionExpr, frame: _Frame) -> Closure:
        captured = {v: frame.values[v] for v in free_vars(function) if v is not binding.var}
        out = Closure(function, captured)
        captured[binding.var] = out
        return out

    def result(self, block: Block, frame: _Frame) -> Any:
        if isinstance(block.result, Tuple):
            return tuple(self.atom(f, frame) for f in block.result.fields)
        return self.atom(block.result, frame)

    def apply(self, call: Call, frame: _Frame) -> Any:
        """Call an operator. What it would overwrite is copied, since other variables may share the memory."""
        op = call.op
        if not isinstance(op, Op):
            raise IRError("interpreter", f"{call.op_name} is not registered", "operators of the registry")
        args = [self.argument(a, frame) for a in call.args]
        if isinstance(op, FunctionOp):
            return op.run(*args)
        if isinstance(op, LoopOp):
            return self.loop(op, args)
        for name in op.inplace.values():
            args[op.schema.index[name]] = copy_of(args[op.schema.index[name]])
        if call.dialect is None:
            return invoke(state(op), *args)
        with with_dialect(call.dialect):
            return invoke(state(op), *args)

    def loop(self, op: LoopOp, args: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a loop, whose body is a part of the operator or, outlined, the first argument."""
        body, args = (op.body, args) if op.body is not None else (args[0].function, args[1:])
        inner = _Interpreter(self.module)
        return iterate(op, args, lambda *values: inner.run(body, values, "step"))

    def argument(self, arg: object, frame: _Frame) -> Any:
        """An argument of a call as operators take it."""
        if is_sequence(arg):
            return tuple([self.argument(item, frame) for item in arg])
        return self.leaf(arg, frame)

    def leaf(self, value: object, frame: _Frame) -> Any:
        """An atom or attribute value as operators take it."""
        if isinstance(value, ATOMS):
            return self.atom(value, frame)
        return evaluate_dim(value, frame.sizes) if isinstance(value, SymDim) else value

    def atom(self, atom: Atom, frame: _Frame) -> Any:
        if isinstance(atom, Var):
            return frame.values[atom]
        if isinstance(atom, GlobalVar):
            return Closure(self.module[atom.name], {})
        if atom not in self.constants:
            self.constants[atom] = _constant(atom)
        return self.constants[atom]


def _constant(atom: Constant) -> NDArray:
    if isinstance(atom.value, NDArray) and atom.value.type is atom.type:
        return atom.value
    return asarray(to_array(atom.value), atom.type.dtype, atom.type.device)
