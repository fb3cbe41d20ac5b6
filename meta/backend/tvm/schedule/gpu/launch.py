"""Hand-written loops on a GPU: what is independent runs in threads of its own, the rest in one thread.

Computes written as loops (`te.extern`) say which of their loops have independent iterations: those of kind "parallel",
and those annotated with INDEPENDENT. Of a nest annotated with ACCUMULATE the iterations may run in any order, provided
that its one store, which adds to what is there, is atomic.
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te.loops import ACCUMULATE, INDEPENDENT

_THREADS: Final = 128
_ATOMIC: Final = {"float32": "float", "float64": "double", "int32": "int", "uint32": "unsigned int"}


def launched(func: Any) -> Any:
    """`func` with the loops of its hand-written blocks bound to threads."""

    def visit(block: Any) -> Any:
        if block.iter_vars or isinstance(block.body, tvm.BufferStore) or str(block.name_hint) == "root":
            return block
        return tvm.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, _bound(block.body), block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip

    return tvm.structural_map(func, (tvm.SBlock, visit))


def _bound(body: Any) -> Any:
    if isinstance(body, tvm.SeqStmt):
        return tvm.SeqStmt([_bound(part) for part in body.seq])
    loops, inner = _nest(body)
    if not loops or any(isinstance(loop.extent, tvm.IntImm) and int(loop.extent) == 0 for loop in loops):
        return _threads([], body)
    if ACCUMULATE in loops[0].annotations:
        inner = _atomic(inner)
        if inner is None:
            return _threads([], body)
    return _threads(loops, inner)


def _nest(statement: Any) -> tuple[list[Any], Any]:
    """The loops with independent iterations around a statement, outermost first, and the statement."""
    loops: list[Any] = []
    while isinstance(statement, tvm.For) and _independent(statement):
        loops.append(statement)
        statement = statement.body
    return loops, statement


def _independent(loop: Any) -> bool:
    marked = INDEPENDENT in loop.annotations or ACCUMULATE in loop.annotations
    return marked or loop.kind == tvm.tirx.ForKind.PARALLEL


def _threads(loops: list[Any], body: Any) -> Any:
    """`body` in a thread for each iteration of `loops`; in one thread where there are none."""
    total: Any = tvm.tirx.const(1, "int64")
    for loop in loops:
        total = total * loop.extent.astype("int64")
    count = _THREADS if loops else 1
    size = tvm.tirx.const(count, "int64")
    block, thread = tvm.Var("block", "int64"), tvm.Var("thread", "int64")
    if loops:
        position: Any = block * size + thread
        inside = tvm.tirx.LT(position, total)
        values: dict[Any, Any] = {}
        for loop in reversed(loops):
            extent = loop.extent.astype("int64")
            value = position if loop is loops[0] else tvm.tirx.truncmod(position, extent)
            values[loop.loop_var] = (loop.min.astype("int64") + value).astype(str(loop.loop_var.ty.dtype))
            position = tvm.tirx.truncdiv(position, extent)
        body = tvm.structural_map(body, (tvm.Var, lambda var: values.get(var, var)))
        body = tvm.tirx.IfThenElse(inside, body, None)
    grid = tvm.tirx.truncdiv(total + (size - 1), size)
    return _thread_loop(block, "blockIdx.x", grid, _thread_loop(thread, "threadIdx.x", size, body))


def _thread_loop(var: Any, name: str, extent: Any, body: Any) -> Any:
    binding = tvm.IterVar(tvm.Range(0, extent), tvm.Var(name, "int64"), tvm.tirx.IterVar.ThreadIndex, name)
    zero = tvm.tirx.const(0, "int64")
    return tvm.For(var, zero, extent, tvm.tirx.ForKind.THREAD_BINDING, body, binding)


def _atomic(store: Any) -> Any:
    """`target[at] = target[at] + value` as one atomic step; None where it is something else or there is no such step
    for the dtype."""
    if not isinstance(store, tvm.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return None
    dtype, here, value = str(store.buffer.dtype), store.value.a, store.value.b
    if dtype not in _ATOMIC or not isinstance(here, tvm.TensorLoad):
        return None
    address = tvm.tirx.address_of(here)
    return tvm.tirx.Evaluate(tvm.tirx.call_extern(dtype, "atomicAdd", address, value))
