"""Launch of hand-written loops (`te.extern`) on a GPU.

Scans, sorting and scattering are computes written as loops, which schedule primitives cannot split. They mark the loops
whose iterations are independent: by kind "parallel", or by the annotation INDEPENDENT. In a nest annotated with
ACCUMULATE, iterations may run in any order if its single store, an addition to the target, is atomic.

Each nest of marked loops becomes a kernel with one thread per iteration, or per few iterations of a fill; unmarked
inner loops run serially in that thread. A statement without marked loops runs in one thread. Allocations stay on the
host, and so do loops annotated with LAUNCHES, whose kernels bind their threads themselves.
"""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.gpu.loops import thread_loop, unrolled_loop
from meta.backend.tvm.te.loops import ACCUMULATE, INDEPENDENT, LAUNCHES

_BLOCK_THREADS: Final = 128
_ATOMIC_DTYPES: Final = ("float32", "float64", "int32", "uint32")
"""dtypes for which CUDA has an atomic addition."""


def launch_loops(func: tvm.PrimFunc) -> Any:
    """`func` with the loops of its hand-written blocks bound to threads."""

    def visit(block: tvm.SBlock) -> Any:
        if block.iter_vars or isinstance(block.body, tvm.BufferStore) or str(block.name_hint) == "root":
            return block
        return tvm.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, _launch(block.body), block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip

    return tvm.structural_map(func, (tvm.SBlock, visit))


def _launch(body: tvm.Object) -> Any:
    """The statements of `body`, each with its marked loops bound to threads."""
    if isinstance(body, tvm.SeqStmt):
        return tvm.SeqStmt([_launch(part) for part in body.seq])
    if isinstance(body, tvm.tirx.AllocBuffer) or (isinstance(body, tvm.For) and LAUNCHES in body.annotations):
        return body
    loops, inner = _split_nest(body)
    if not loops or any(isinstance(loop.extent, tvm.IntImm) and int(loop.extent) == 0 for loop in loops):
        return _bind_threads([], body)
    if ACCUMULATE in loops[0].annotations:
        inner = _make_atomic(inner)
        if inner is None:
            return _bind_threads([], body)
    return _bind_threads(loops, inner)


def _split_nest(statement: tvm.Object) -> tuple[list[Any], Any]:
    """The marked loops around a statement, outermost first, and the statement."""
    loops: list[Any] = []
    while isinstance(statement, tvm.For) and _is_marked(statement):
        loops.append(statement)
        statement = statement.body
    return loops, statement


def _is_marked(loop: tvm.For) -> bool:
    is_annotated = INDEPENDENT in loop.annotations or ACCUMULATE in loop.annotations
    return is_annotated or loop.kind == tvm.tirx.ForKind.PARALLEL


def _bind_threads(loops: list[Any], body: tvm.Object) -> Any:
    """`body` in one thread per iteration of `loops`, or per few of a fill; in one thread if there are none."""
    total: Any = tvm.tirx.const(1, "int64")
    for loop in loops:
        total = total * loop.extent.astype("int64")
    block_threads = tvm.tirx.const(_BLOCK_THREADS if loops else 1, "int64")
    steps = tvm.tirx.const(limits.ROW_STEPS if loops and _is_fill(body) else 1, "int64")
    block, step, thread = (tvm.Var(name, "int64") for name in ("block", "step", "thread"))
    if loops:
        position: Any = (block * steps + step) * block_threads + thread
        in_range = tvm.tirx.LT(position, total)
        values: dict[Any, Any] = {}
        for loop in reversed(loops):
            # TVM computes sizes of buffers from quotients, on the host, where a division by 0 would end the process.
            extent = tvm.tirx.max(loop.extent.astype("int64"), tvm.tirx.const(1, "int64"))
            value = position if loop is loops[0] else tvm.tirx.truncmod(position, extent)
            values[loop.loop_var] = (loop.min.astype("int64") + value).astype(str(loop.loop_var.ty.dtype))
            position = tvm.tirx.truncdiv(position, extent)
        body = tvm.structural_map(body, (tvm.Var, lambda var: values.get(var, var)))
        body = tvm.tirx.IfThenElse(in_range, body, None)
        body = unrolled_loop(step, steps, body)
    grid = tvm.tirx.truncdiv(total + (block_threads * steps - 1), block_threads * steps)
    return thread_loop(block, "blockIdx.x", grid, thread_loop(thread, "threadIdx.x", block_threads, body))


def _is_fill(body: tvm.Object) -> bool:
    """Whether a statement stores what it does not load: a thread for each element would only wait to be started."""
    loads: list[Any] = []
    tvm.structural_walk(body, (tvm.TensorLoad, loads.append))
    return isinstance(body, tvm.BufferStore) and not loads


def _make_atomic(store: tvm.Object) -> Any:
    """`target[i] = target[i] + value`, perhaps under a condition, as an atomic addition; None for other statements and
    for other dtypes."""
    if isinstance(store, tvm.tirx.IfThenElse) and store.else_case is None:
        addition = _make_atomic(store.then_case)
        return None if addition is None else tvm.tirx.IfThenElse(store.condition, addition, None)
    if not isinstance(store, tvm.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return None
    dtype, target, value = str(store.buffer.dtype), store.value.a, store.value.b
    if dtype not in _ATOMIC_DTYPES or not isinstance(target, tvm.TensorLoad):
        return None
    address = tvm.tirx.address_of(target)
    return tvm.tirx.Evaluate(tvm.tirx.call_extern(dtype, "atomicAdd", address, value))
