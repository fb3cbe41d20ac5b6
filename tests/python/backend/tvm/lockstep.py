"""Runs functions that bind threads in Python: the threads of a block take turns from barrier to barrier, forwards and
backwards, so that a missing barrier shows. An index out of range raises IndexError."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import dtype_of
from meta.backend.tvm.te import radix_sort

BARRIER: Final = object()
Values = dict[Any, Any]
"""The value of each variable and the memory of each buffer, as a thread sees them."""


def run(func: Any, arrays: Sequence[np.ndarray]) -> None:
    """Call a function on arrays, which it may write."""
    values: Values = {}
    for param, array in zip(func.params, arrays, strict=True):
        buffer = func.buffer_map[param] if hasattr(func, "buffer_map") and param in func.buffer_map else param
        values[buffer] = array.reshape(-1)
        for extent, size in zip(_shape(buffer), array.shape, strict=True):
            if isinstance(extent, tvm.Var):
                values[extent] = size
    assert not list(_run(func.body, values)), "a barrier outside of threads"


def _run(statement: Any, values: Values) -> Iterator[Any]:
    """Run a statement; yields at each barrier."""
    if isinstance(statement, tvm.SeqStmt):
        for part in statement.seq:
            yield from _run(part, values)
    elif isinstance(statement, tvm.SBlockRealize):
        yield from _run(statement.block.body, values)
    elif isinstance(statement, tvm.For):
        yield from _run_loop(statement, values)
    elif isinstance(statement, tvm.tirx.IfThenElse):
        chosen = statement.then_case if evaluate(statement.condition, values) else statement.else_case
        if chosen is not None:
            yield from _run(chosen, values)
    elif isinstance(statement, tvm.tirx.While):
        while evaluate(statement.condition, values):
            yield from _run(statement.body, values)
    elif isinstance(statement, tvm.tirx.AllocBuffer):
        _allocate(statement.buffer, values)
    elif isinstance(statement, tvm.BufferStore):
        if _called(statement.value) in _COLLECTIVE:
            result = yield from _vote(statement.value, values)
        else:
            result = evaluate(statement.value, values)
        memory = values[statement.buffer]
        memory[_offset(statement.buffer, statement.indices, values)] = result
    elif isinstance(statement, tvm.tirx.Evaluate) and _called(statement.value) == "tirx.tvm_storage_sync":
        yield BARRIER
    elif isinstance(statement, tvm.tirx.Evaluate) and _called(statement.value) == "atomicAdd":
        _, address, number = statement.value.args
        load = address.args[0]
        values[load.source][_offset(load.source, load.indices, values)] += evaluate(number, values)
    else:
        raise NotImplementedError(type(statement).__name__)


def _vote(call: Any, values: Values) -> Iterator[Any]:
    """The result of an instruction that reads a value of each thread of the block, or of the warp."""
    values[_CALLS_SO_FAR] = number = values.get(_CALLS_SO_FAR, 0) + 1
    votes = values[_SHARED].setdefault(number, {})
    votes[values[_THREAD]] = evaluate(call.args[-1], values)
    yield BARRIER
    if _called(call) == "__syncthreads_count":
        return sum(map(bool, votes.values()))
    first = values[_THREAD] // radix_sort.WARP * radix_sort.WARP
    return sum(bool(votes[first + lane]) << lane for lane in range(radix_sort.WARP))


_COLLECTIVE: Final = ("__syncthreads_count", "__ballot_sync")
_CALLS_SO_FAR: Final = "calls"
_SHARED: Final = "shared"
_THREAD: Final = "thread"
"""Keys among the values: how often a thread has voted; the memory that the threads of a block share, by buffer, and
their votes, by that number; the number of the thread."""


def _run_loop(loop: Any, values: Values) -> Iterator[Any]:
    start, extent = evaluate(loop.min, values), evaluate(loop.extent, values)
    tag = str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
    if tag == "threadIdx.x":
        threads = [_run(loop.body, {**values, loop.loop_var: i, _THREAD: i}) for i in range(extent)]
        _run_threads(threads)
        return
    for i in range(start, start + extent):
        if tag == "blockIdx.x":
            yield from _run(loop.body, {**values, loop.loop_var: i, _SHARED: {}})
        else:
            values[loop.loop_var] = i
            yield from _run(loop.body, values)


def _run_threads(threads: list[Iterator[Any]]) -> None:
    """Run the threads of a block from barrier to barrier."""
    while threads:
        waiting = [next(thread, None) for thread in threads]
        assert len(set(waiting)) == 1, "some threads wait at a barrier that others do not reach"
        if waiting[0] is None:
            return
        threads.reverse()


def _allocate(buffer: Any, values: Values) -> None:
    size = int(np.prod([evaluate(extent, values) for extent in _shape(buffer)]))
    memory = np.full(size, 77, str(buffer.dtype))  # as unknown memory
    is_shared = str(buffer.scope()) == "shared"
    values[buffer] = values[_SHARED].setdefault(buffer, memory) if is_shared else memory


def _shape(buffer: Any) -> list[Any]:
    return list(buffer.shape)


def _offset(buffer: Any, indices: Sequence[Any], values: Values) -> int:
    offset = 0
    for index, extent in zip(indices, _shape(buffer), strict=True):
        offset = offset * evaluate(extent, values) + evaluate(index, values)
    if offset < 0:
        raise IndexError(f"index {offset}")
    return offset


def _called(node: Any) -> str:
    """The name of the function that an expression calls."""
    if not isinstance(node, tvm.Call):
        return ""
    name = str(node.op.name)
    return str(node.args[0].value) if name in ("tirx.call_extern", "tirx.call_pure_extern") else name


def _leading_zeros(value: int) -> int:
    return 64 - (value & ((1 << 64) - 1)).bit_length()


_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "prim.clz": _leading_zeros,
    "__clzll": _leading_zeros,
    "__popc": int.bit_count,
}
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Min": min, "Max": max,
    "FloorDiv": operator.floordiv, "FloorMod": operator.mod, "Div": operator.floordiv, "Mod": operator.mod,
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "LShift": operator.lshift, "RShift": operator.rshift,
    "BitwiseAnd": operator.and_, "BitwiseOr": operator.or_, "BitwiseXor": operator.xor,
}  # fmt: skip
"""Of natural numbers, for which division rounds to zero as it rounds down."""


def evaluate(node: Any, values: Values) -> Any:
    """The value of an expression. Elements are converted to Python's numbers, which do not overflow."""
    kind = type(node).__name__
    if kind in _OPERATORS:
        return _OPERATORS[kind](evaluate(node.a, values), evaluate(node.b, values))
    if isinstance(node, tvm.IntImm):
        return int(node.value)
    if isinstance(node, tvm.Var):
        return values[node]
    if isinstance(node, tvm.TensorLoad):
        return values[node.source][_offset(node.source, node.indices, values)].item()
    if kind == "Cast":
        return _converted(evaluate(node.value, values), dtype_of(node))
    if kind == "Select":
        return evaluate(node.true_value if evaluate(node.condition, values) else node.false_value, values)
    if kind == "And":
        return evaluate(node.a, values) and evaluate(node.b, values)
    if kind == "Or":
        return evaluate(node.a, values) or evaluate(node.b, values)
    if kind == "Not":
        return not evaluate(node.a, values)
    if _called(node) == "prim.if_then_else":
        condition, chosen, other = node.args
        return evaluate(chosen if evaluate(condition, values) else other, values)
    if _called(node) in _CALLS:
        arguments = node.args[1:] if str(node.op.name).endswith("extern") else node.args
        return _CALLS[_called(node)](*(evaluate(a, values) for a in arguments))
    raise NotImplementedError(f"{kind} {_called(node)}")


def _converted(value: Any, dtype: str) -> Any:
    if dtype == "bool":
        return bool(value)
    return np.array([int(value)], "int64").astype(dtype)[0].item()
