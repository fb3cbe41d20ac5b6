"""Statements of hand-written kernels: loops, threads and the buffers that they share or keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.nest import substitute

Expr = Any
Stmt = Any


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """The statements, at least one, as a single statement."""
    return tvm.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]


def serial_loop(var: tvm.Var, extent: Expr, body: Stmt) -> Stmt:
    return _loop(var, extent, body, tvm.tirx.ForKind.SERIAL)


def unrolled_loop(var: tvm.Var, extent: Expr, body: Stmt) -> Stmt:
    return _loop(var, extent, body, tvm.tirx.ForKind.UNROLLED)


def vector_loop(var: tvm.Var, extent: Expr, body: Stmt) -> Stmt:
    return _loop(var, extent, body, tvm.tirx.ForKind.VECTORIZED)


def _loop(var: tvm.Var, extent: Expr, body: Stmt, kind: Any) -> Stmt:
    return tvm.For(var, tvm.tirx.const(0, str(var.ty.dtype)), extent, kind, body)


def thread_loop(var: tvm.Var, tag: str, extent: Expr, body: Stmt) -> Stmt:
    """A loop over `var` that is bound to a thread index, as "threadIdx.x"."""
    dtype = str(var.ty.dtype)
    binding = tvm.IterVar(tvm.Range(0, extent), tvm.Var(tag, dtype), tvm.tirx.IterVar.ThreadIndex, tag)
    return tvm.For(var, tvm.tirx.const(0, dtype), extent, tvm.tirx.ForKind.THREAD_BINDING, body, binding)


def allocating(body: Stmt, buffers: Sequence[Any], name: str) -> Stmt:
    """The statement in a block that allocates the buffers."""
    return tvm.SBlockRealize([], True, tvm.SBlock([], [], [], name, body, None, list(buffers)))


def guarded(condition: Expr, statement: Stmt) -> Stmt:
    """The statement under a condition, without it where TVM proves it."""
    return statement if tvm.Analyzer().can_prove(condition) else tvm.tirx.IfThenElse(condition, statement, None)


def local(name: str, size: int, dtype: str) -> Any:
    """A buffer in the registers of a thread."""
    return tvm.tirx.decl_buffer([tvm.tirx.const(size, "int32")], dtype, name, scope="local")


def shared(name: str, shape: Sequence[Expr], dtype: str) -> Any:
    """A buffer of a block of threads."""
    return tvm.tirx.decl_buffer(list(shape), dtype, name, scope="shared")


def store(buffer: tvm.Buffer, value: Expr, *indices: Expr) -> Stmt:
    """buffer[indices] = value; at 0 without indices."""
    return tvm.BufferStore(buffer, value, list(indices) or [0])


def zero_of(buffer: tvm.Buffer) -> Expr:
    return tvm.tirx.const(0, str(buffer.dtype))


def tree_sum(numbers: Sequence[Expr]) -> Expr:
    """The sum of the numbers by halves."""
    if len(numbers) == 1:
        return numbers[0]
    half = len(numbers) // 2
    return tree_sum(numbers[:half]) + tree_sum(numbers[half:])


def sum_into(total: Any, numbers: Any, count: Expr, number: Callable[[Expr], Expr]) -> Stmt:
    """total[0] = the sum of `number(n)` for all n below `count`, by halves of a few at a time.

    numbers: registers from `numbers_for` a divisor of `count`."""
    dtype, capacity = str(count.ty.dtype), int(numbers.shape[0])
    width, groups = min(capacity, limits.GPU_SUM_WIDTH), max(capacity - limits.GPU_SUM_WIDTH, 1)
    n, group, lane = (tvm.Var(name, dtype) for name in ("n", "group", "lane"))
    position = (n * groups + group) * width + lane
    load = unrolled_loop(lane, tvm.tirx.const(width, dtype), store(numbers, number(position), lane))
    added = tree_sum([numbers[i] for i in range(width)])
    if groups == 1:
        load = substitute(load, {group: tvm.tirx.const(0, dtype)})
    else:
        of_group = sequence([load, store(numbers, added, group + width)])
        load = serial_loop(group, tvm.tirx.const(groups, dtype), of_group)
        added = tree_sum([numbers[width + i] for i in range(groups)])
    steps = tvm.tirx.floordiv(count, tvm.tirx.const(width * groups, dtype))
    body = sequence([load, store(total, total[0] + added)])
    return sequence([store(total, zero_of(total)), serial_loop(n, steps, body)])


def numbers_for(count: int, dtype: str) -> Any:
    """The registers that `sum_into` needs to add a power of two of numbers, or multiples of it: those added at once,
    and sums of them."""
    return local(
        "numbers",
        min(
            count,
            limits.GPU_SUM_WIDTH if count <= limits.GPU_SUM_WIDTH * limits.GPU_SUM_WIDTH else 2 * limits.GPU_SUM_WIDTH,
        ),
        dtype,
    )
