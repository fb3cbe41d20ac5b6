"""Loops of a program: functions in Python that repeat a step and write the results to the memory of the caller."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any

from meta.backend.memory import allocation, numpy_arrays
from meta.backend.tvm import adapter as tvm
from meta.device import CPU
from meta.dtype import itemsize
from meta.ir.expr import Call, GlobalVar
from meta.ir.module import Module
from meta.ir.type import TensorType, stored
from meta.ir.visitor import walk
from meta.records import record
from meta.tracing.loop_op import LoopOp
from meta.vm.lower.python_errors import kept

Step = Callable[..., Any]


def loop_calls(module: Module) -> Iterator[tuple[LoopOp, Call]]:
    """The loops of a module."""
    for function in module.functions.values():
        for binding in walk(function):
            value = binding.value
            if isinstance(value, Call) and isinstance(value.op, LoopOp):
                yield value.op, value


def step_name(call: Call) -> str:
    """The name of the function that a loop repeats."""
    step = call.args[0]
    assert isinstance(step, GlobalVar)
    return step.name


@record
class LoopCall:
    """The form of a loop, apart from its step. carried, scanned, captured: the number of operands of each kind.
    length: the number of steps, "while" for a loop on a condition, "n" where the operands say it.
    elements, stacks: the types of the operands and results that are taken apart and filled, element by element.
    single: whether a step has one result."""

    step: str
    carried: int
    scanned: int
    captured: int
    length: int | str
    reverse: bool
    elements: tuple[TensorType, ...]
    stacks: tuple[TensorType, ...]
    single: bool

    @property
    def function_name(self) -> str:
        """The name that programs call it by: equal names mean equal loops."""
        return f"meta.vm.loop.{self.step}.{hashlib.sha256(repr(self).encode()).hexdigest()[:16]}"


def loop_of(op: LoopOp, call: Call) -> LoopCall:
    """The loop of a call."""
    types: list[Any] = [a.type for a in call.args[1:]]
    first, captured = op.carried, op.carried + op.scanned
    length = "while" if op.length is None else op.length if isinstance(op.length, int) else "n"
    stacks: Any = op.result.fields[op.carried :]
    return LoopCall(
        step_name(call), op.carried, op.scanned, len(types) - captured, length, op.reverse,
        tuple(types[first:captured]), stacks, len(op.result.fields) == 1,
    )  # fmt: skip


def register(loops: Iterable[LoopCall], step_of: Callable[[str], Step]) -> None:
    """Make loops known to TVM. step_of: the step of a name in the machine that runs."""
    for loop in loops:
        tvm.register_global_func(loop.function_name, kept(_runner(loop, step_of)), override=True)


def loops_of(module: Module) -> list[LoopCall]:
    """The forms of the loops of a module."""
    return [loop_of(op, call) for op, call in loop_calls(module)]


def is_true(flag: Any) -> bool:
    """The value of a 0-d bool tensor, for which the host waits. It needs no part of TVM's compiler."""
    return bool(numpy_arrays.to_numpy(allocation.copy_to(flag, CPU), "bool", (), CPU))


def _runner(loop: LoopCall, step_of: Callable[[str], Step]) -> Callable[..., None]:
    name, carried, scanned, reverse, single = loop.step, loop.carried, loop.scanned, loop.reverse, loop.single
    count = carried + scanned + loop.captured
    length = loop.length if isinstance(loop.length, int) else None
    kinds, element_kinds = loop.stacks, loop.elements

    def results(value: Any) -> Sequence[Any]:
        return (value,) if single and hasattr(value, "dtype") else value

    def repeat(*args: Any) -> None:
        step, captured, outs = step_of(name), args[carried + scanned : count], args[count:]
        carry: Sequence[Any] = args[:carried]
        while is_true(carry[0]):
            carry = tuple(results(step(*carry, *captured)))
        _copy(carry, outs)

    def scan(*args: Any) -> None:
        step, captured, outs = step_of(name), args[carried + scanned : count], args[count:]
        carry: Sequence[Any] = args[:carried]
        stacks = outs[carried:]
        steps = length if length is not None else int((*args[carried : carried + scanned], *stacks)[0].shape[0])
        elements = [_Elements(x, k) for x, k in zip(args[carried : carried + scanned], element_kinds, strict=True)]
        items = [_Elements(x, k) for x, k in zip(stacks, kinds, strict=True)]
        for i in reversed(range(steps)) if reverse else range(steps):
            values = results(step(*carry, *[x.copy(i) for x in elements], *captured))
            carry = tuple(values[:carried])
            for stack, value in zip(items, values[carried:], strict=True):
                allocation.copy_into(value, stack[i])
        _copy(carry, outs)

    return repeat if loop.length == "while" else scan


def _copy(carry: Sequence[Any], outs: Sequence[Any]) -> None:
    """The last carry may be an operand of the loop; its results are memory of their own."""
    for value, out in zip(carry, outs, strict=False):
        allocation.copy_into(value, out)


class _Elements:
    """The elements of a tensor along axis 0: views, and copies for kernels, which take no tensors with an offset."""

    __slots__ = ("dims", "dtype", "kind", "shape", "stride", "tensor")

    def __init__(self, tensor: Any, kind: TensorType) -> None:
        self.tensor = tensor
        self.kind = stored(kind)
        self.dims = tuple(map(int, tensor.shape[1:]))
        self.shape = tvm.Shape(self.dims)
        self.dtype = tensor.dtype
        self.stride = prod(self.dims) * itemsize(self.kind.dtype)

    def __getitem__(self, i: int) -> Any:
        return tvm.create_view(self.tensor, self.shape, self.dtype, i * self.stride)

    def copy(self, i: int) -> Any:
        out = allocation.empty(self.dims, self.kind.dtype, self.kind.device)
        allocation.copy_into(self[i], out)
        return out
