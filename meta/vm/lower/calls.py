"""Calls that programs make through functions in Python: loops, recursion that takes care of the stack, on which the
machine keeps the calls in progress, and open calls.

A loop repeats a step: a function that calls itself last (`passes/tail_loops.py`), or the body of a LoopOp, which writes
its results to the memory of the caller. Another recursive function takes one more argument, a token, which its callers
get from a function that checks how much of the stack is left. The shapes of the results of an open call depend on
values: a program runs it eagerly, and binds its symbolic sizes to the result's sizes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache
from math import prod
from typing import Any

from meta.backend.memory import allocation, numpy_arrays, stack
from meta.backend.python_errors import kept
from meta.backend.tvm import adapter as tvm
from meta.device import CPU, Device
from meta.dtype import itemsize
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray
from meta.errors import IRError
from meta.ir.analysis import call_graph, callees_first, recursive_functions
from meta.ir.builder import Module
from meta.ir.expr import Call, GlobalVar, arg_types
from meta.ir.type import TensorType, stored, tensor_type
from meta.ir.visitor import walk
from meta.op.rules import first_tensor
from meta.passes.outline_branches import BRANCH
from meta.passes.tail_loops import LOOP
from meta.records import record
from meta.tracing.loop_op import LoopOp

LOOP_FUNCTION, CHECK_FUNCTION = "meta.vm.loop", "meta.vm.check_stack"
"""The names by which programs call `_loop` and `_check_stack`."""
RELEASE = "meta_release"
"""A function that returns nothing, in executables of bytecode."""
MAX_CHAIN = 100
"""Functions that call one another without a check of the stack."""


@record
class Calls:
    """steps: the functions that loops repeat.  checked: those that take a token."""

    steps: frozenset[str] = frozenset()
    checked: frozenset[str] = frozenset()


def special_calls(module: Module) -> Calls:
    """The steps, and the functions to check: recursive ones, and all of a module whose calls nest deeper than
    MAX_CHAIN. Branches of conditionals are called only by the functions around them, which are checked."""
    calls = {name: called & module.functions.keys() for name, called in call_graph(module).items()}
    recursive = recursive_functions(calls)
    checked = set(calls) if _depth(calls, recursive) > MAX_CHAIN else recursive
    values = [b.value for function in module.functions.values() for b in walk(function)]
    steps = {v.op.name for v in values if isinstance(v, Call) and LOOP in v.attrs and isinstance(v.op, GlobalVar)}
    steps |= {loop.step for loop in loops_of(module)}
    plain = (n for n in checked - steps - {"main"} if BRANCH not in module[n].attrs)
    return Calls(frozenset(steps), frozenset(plain))


def _depth(calls: Mapping[str, Set[str]], recursive: Set[str]) -> int:
    """The most functions that call one another in a row, other than recursive ones."""
    depths: dict[str, int] = {}
    for name in callees_first(calls):
        depths[name] = 1 + max((depths[n] for n in calls[name] if n in depths and n not in recursive), default=0)
    return max(depths.values(), default=0)


@record
class LoopCall:
    """The form of a loop, apart from its step. carried, captured: the number of operands of these kinds.
    length: the number of steps, "while" for a loop on a condition, "n" where the operands say it.
    elements, stacks: the types of the operands and results that are taken apart and filled, element by element."""

    step: str
    carried: int
    captured: int
    length: int | str
    reverse: bool
    elements: tuple[TensorType, ...]
    stacks: tuple[TensorType, ...]

    @property
    def function_name(self) -> str:
        """The name that programs call it by: equal names mean equal loops."""
        return f"meta.vm.loop.{self.step}.{hashlib.sha256(repr(self).encode()).hexdigest()[:16]}"


def loop_of(op: LoopOp, call: Call) -> LoopCall:
    """The loop of a call."""
    step = call.args[0]
    assert isinstance(step, GlobalVar)
    types: list[Any] = [a.type for a in call.args[1:]]
    first, captured = op.carried, op.carried + op.scanned
    length = "while" if op.length is None else op.length if isinstance(op.length, int) else "n"
    stacks: Any = op.result.fields[first:]
    elements = tuple(types[first:captured])
    return LoopCall(step.name, first, len(types) - captured, length, op.reverse, elements, stacks)


def loops_of(module: Module) -> list[LoopCall]:
    """The loops of a module."""
    calls = (b.value for function in module.functions.values() for b in walk(function) if isinstance(b.value, Call))
    return [loop_of(call.op, call) for call in calls if isinstance(call.op, LoopOp)]


def function_name(call: Call) -> str:
    """The name that a program calls an open call by."""
    return f"meta.eager.{call.op_name}.{getattr(call.op, 'revision', 0)}.{_device(call)}"


def _device(call: Call) -> Device:
    tensor = first_tensor(arg_types(call.args))
    assert tensor is not None
    return tensor.device


# --- running ----------------------------------------------------------------------------------------------------------


class _Running(threading.local):
    """The machines that run in this thread, the innermost last."""

    def __init__(self) -> None:
        self.modules: list[Any] = []


_running = _Running()


def entered(module: Any, main: Callable[..., Any]) -> Callable[..., Any]:
    """`main`, which tells the functions in Python that it calls which machine runs."""

    def run(*args: Any) -> Any:
        running = _running
        running.modules.append(module)
        try:
            return main(*args)
        finally:
            running.modules.pop()

    return run


def register(loops: Iterable[LoopCall], open_calls: Iterable[Call] = ()) -> None:
    """Make the functions that programs call known to TVM."""
    if tvm.get_global_func(LOOP_FUNCTION, allow_missing=True) is None:
        tvm.register_global_func(LOOP_FUNCTION, kept(_loop))
        tvm.register_global_func(CHECK_FUNCTION, kept(_check_stack))
    for loop in loops:
        tvm.register_global_func(loop.function_name, kept(_runner(loop)), override=True)
    for call in open_calls:
        tvm.register_global_func(function_name(call), kept(_eager(call.op, _device(call))), override=True)


def _loop(name: str, *args: Any) -> Any:
    """Run a step until the first of its results is False; the results."""
    step = _running.modules[-1][name]
    while True:
        results = step(*args)
        if not _is_true(results[0]):
            return results
        args = tuple(results)[1:]


def _check_stack(name: str) -> Any:
    """A token for a call of a function. Raises IRError where the stack is nearly used up."""
    reserve = 256 << 10  # Bytes of the stack that stay free for kernels and for the error.
    left = stack.left()
    if left is not None and left < reserve:
        raise IRError(
            "vm",
            f"calls of '{name}' nest deeper than the stack of this thread allows ({stack.size() >> 10} KiB)",
            "recursion that ends earlier",
            "call itself as the last action of the function, or run the program on the interpreter",
        )
    return _token()


@cache
def _token() -> Any:
    import numpy as np

    return tvm.tensor(np.array(True))


def _is_true(flag: Any) -> bool:
    """The value of a 0-d bool tensor, for which the host waits. It needs no part of TVM's compiler."""
    return bool(numpy_arrays.to_numpy(allocation.copy_to(flag, CPU), "bool", (), CPU))


def _runner(loop: LoopCall) -> Callable[..., None]:
    """The function that runs a loop: operands and results -> nothing."""
    first, last = loop.carried, loop.carried + len(loop.elements)
    count = last + loop.captured
    single = first + len(loop.stacks) == 1

    def run(*args: Any) -> None:
        step, captured, outs = _running.modules[-1][loop.step], args[last:count], args[count:]
        carry, scanned, stacks = args[:first], args[first:last], outs[first:]
        elements = [_Elements(x, k) for x, k in zip(scanned, loop.elements, strict=True)]
        items = [_Elements(x, k) for x, k in zip(stacks, loop.stacks, strict=True)]

        def advanced(carry: Sequence[Any], i: int = 0) -> Sequence[Any]:
            value = step(*carry, *[x.copy(i) for x in elements], *captured)
            results = (value,) if single and hasattr(value, "dtype") else tuple(value)
            for item, each in zip(items, results[first:], strict=True):
                allocation.copy_into(each, item[i])
            return results[:first]

        if loop.length == "while":
            while _is_true(carry[0]):
                carry = advanced(carry)
        else:
            steps = loop.length if isinstance(loop.length, int) else int((*scanned, *stacks)[0].shape[0])
            for i in reversed(range(steps)) if loop.reverse else range(steps):
                carry = advanced(carry, i)
        # The last carry may be an operand of the loop; its results are memory of their own.
        for value, out in zip(carry, outs, strict=False):
            allocation.copy_into(value, out)

    return run


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


def _eager(op: Any, device: Device) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        kind = tensor_type(tuple(map(int, x.shape)), str(x.dtype), device)
        return invoke(state(op), NDArray(x, kind))._data

    return run
