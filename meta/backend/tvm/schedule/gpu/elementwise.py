"""CUDA rule for spatial blocks: elementwise, broadcast, layout changes.

Producers are inlined, because arithmetic costs less than memory access here. Each remaining block becomes a kernel over
its fused loops; elementwise blocks of one shape become one kernel:

    blocks of 256 threads; per thread 1 to 8 elements, 256 apart, so that adjacent threads access adjacent elements

Several elements per thread pay if there are enough elements to keep the GPU busy: with one, launching threads took
longer than memory access (cast of 8192x8192 float32 to float16: 184 us, now 95). Static blocks that compute in float32
load and store 4 elements at once instead, and so do dropouts, whose threads have all elements that share random bits.
"""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import shared
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.gpu.merge import merge_nests
from meta.backend.tvm.schedule.inline import inline_blocks
from meta.backend.tvm.te import philox
from meta.dtype import HALVES

_VECTOR_DTYPES: Final = ("float32", "int32", *HALVES)
_INDEX_DTYPE: Final = "int64"
"""May be compared beside them, in two loads for a vector; other vectors of it do not compile."""
_CHOICE: Final = ".if_then_else"


def schedule_elementwise(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: one kernel per output, or for all outputs where `merge_nests` applies. The rule applies if all blocks that
    remain after inlining are spatial and have loops."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    merged = merge_nests(sch.mod["main"])
    is_merged = not merged.same_as(sch.mod["main"])
    sch = tvm.Schedule(merged, error_render_level="fast") if is_merged else sch
    all_blocks = blocks.list_blocks(sch)
    if not all_blocks or not all(b.is_spatial and sch.get_loops(b.rv) for b in all_blocks):
        return None
    for nest in [all_blocks] if is_merged else [[block] for block in all_blocks]:
        _bind_nest(sch, nest)
    scheduled = sch.mod["main"]
    return _load_both_sides(scheduled) if all(map(blocks.is_elementwise, all_blocks)) else scheduled


def inline_producers(sch: tvm.Schedule) -> Any:
    """A schedule with spatial blocks computed in their consumers: arithmetic that is repeated a few times costs less
    than memory access on a GPU. Rules for reductions recognise the expressions that they add up."""
    return inline_blocks(sch, lambda producer: producer.is_repeated_little, share_in_sums=False)


def bind_threads(sch: tvm.Schedule, loop: tvm.LoopRV, thread_elements: int = 1) -> Any:
    """Bind a loop to blocks of threads with `thread_elements` iterations per thread; returns the threads' loop.

    Iterations of a thread are a block's threads apart, so that adjacent threads access adjacent elements."""
    outer, element, thread = sch.split(loop, factors=[None, thread_elements, limits.BLOCK_THREADS])
    sch.reorder(thread, element)
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.unroll(element)
    return thread


def choose_thread_elements(block: ComputeBlock) -> int:
    """Elements per thread: the most with which the threads keep the GPU busy; half the maximum at symbolic sizes."""
    total = blocks.volume(block.extents)
    if total is None:
        return limits.ELEMENTWISE_THREAD_ELEMENTS // 2
    counts = (
        limits.ELEMENTWISE_THREAD_ELEMENTS,
        limits.ELEMENTWISE_THREAD_ELEMENTS // 2,
        limits.ELEMENTWISE_THREAD_ELEMENTS // 4,
        1,
    )
    return next(n for n in counts if n == 1 or total >= n * limits.BUSY_THREADS)


def _bind_nest(sch: tvm.Schedule, nest: list[ComputeBlock]) -> None:
    """Bind the loops around the blocks of one loop nest."""
    block = nest[0]
    if blocks.volume(block.extents) == 0:
        sch.bind(sch.add_unit_loop(sch.get_loops(block.rv)[0]), "threadIdx.x")
        return
    loops = sch.get_loops(block.rv)
    sharing = _elements_of_random_block(nest)
    if sharing > 1:
        _bind_random_nest(sch, blocks.fuse_loops(sch, loops), sharing)
        return
    vector_lanes = min(map(_choose_vector_lanes, nest))
    if vector_lanes == 1:
        bind_threads(sch, blocks.fuse_loops(sch, loops), choose_thread_elements(block))
        return
    if all(map(blocks.is_elementwise, nest)):
        loop = blocks.fuse_loops(sch, loops)
        outer, thread, vector = sch.split(loop, factors=[None, limits.BLOCK_THREADS, vector_lanes])
    else:  # conditions on the outer axes then do not depend on the position in a vector
        row, vector = sch.split(loops[-1], factors=[None, vector_lanes])
        outer, thread = sch.split(blocks.fuse_loops(sch, [*loops[:-1], row]), factors=[None, limits.BLOCK_THREADS])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(vector)


def _bind_random_nest(sch: tvm.Schedule, loop: tvm.LoopRV, sharing: int) -> None:
    """Bind a loop over elements that share blocks of random bits: a thread has whole vectors of all that share one."""
    threads = philox.LANES // limits.ELEMENTWISE_LANES
    outer, element, thread, vector = sch.split(loop, factors=[None, sharing, threads, limits.ELEMENTWISE_LANES])
    sch.reorder(thread, element)
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.unroll(element)
    sch.vectorize(vector)


def _elements_of_random_block(nest: list[ComputeBlock]) -> int:
    """The number of elements that share a block of random bits, in a nest that stores a mask and floats and whose
    vectors can consist of such elements; 1 in other nests."""
    total = blocks.volume(nest[0].extents)
    names = {str(call.op.name) for block in nest for call in philox.list_calls(block.node.body)}
    written = {str(buffer.dtype) for block in nest for buffer in block.written_buffers}
    is_masked = "bool" in written and len(written) == 2 and written <= {"bool", "float32", *HALVES}
    if total is None or not is_masked or not names or not names <= set(philox.SHARING):
        return 1
    sharing = max(philox.elements_of_block(block.node.body) for block in nest)
    fits = total % (sharing * philox.LANES) == 0 and total >= limits.BUSY_THREADS * sharing * limits.ELEMENTWISE_LANES
    return sharing if fits and not any(map(_computes_in_halves, nest)) else 1


def _choose_vector_lanes(block: ComputeBlock) -> int:
    """Elements per load and store: 4 for a static block of floats that whole blocks of threads cover, if all arithmetic
    is in float32, else 1."""
    total = blocks.volume(block.extents)
    if not all(str(buffer.dtype) in _VECTOR_DTYPES for buffer in block.written_buffers):
        return 1
    others = {str(buffer.dtype) for buffer in block.read_buffers} - set(_VECTOR_DTYPES)
    if others and not (others == {_INDEX_DTYPE} and _only_compares_indices(block)):
        return 1
    if any(str(buffer.dtype) == "int32" for buffer in block.written_buffers):  # its arithmetic has none
        return 1
    if not blocks.is_elementwise(block) and not _is_along_rows(block):
        return 1
    fits = total is not None and total % (limits.ELEMENTWISE_LANES * limits.BLOCK_THREADS) == 0
    return limits.ELEMENTWISE_LANES if fits and not _computes_in_halves(block) else 1


def _only_compares_indices(block: ComputeBlock) -> bool:
    """Whether elements of `_INDEX_DTYPE` are compared with positions, and nothing else."""
    compared = list[Any]()

    def visit(comparison: tvm.Expr) -> None:
        compared.extend(side for side in (comparison.a, comparison.b) if isinstance(side, tvm.TensorLoad))

    tvm.structural_walk(block.node.body, (tvm.tirx.EQ, visit))
    loads = [load for load in blocks.list_loads(block) if str(load.source.dtype) == _INDEX_DTYPE]
    return all(any(load.same_as(side) for side in compared) for load in loads)


def _is_along_rows(block: ComputeBlock) -> bool:
    """Whether vectors along the last axis are contiguous in every operand, or one element of it."""
    store, last = block.node.body, block.node.iter_vars[-1].var
    if not isinstance(store, tvm.BufferStore) or not isinstance(block.extents[-1], int):
        return False
    if block.extents[-1] % limits.ELEMENTWISE_LANES or block.extents[-1] < limits.VECTOR_ROW:
        return False

    def is_row(indices: Any, shape: Any) -> bool:
        """Whether the last index is the position in the row, of a buffer whose rows start where vectors do."""
        length = blocks.as_int(shape[-1])
        is_aligned = isinstance(length, int) and length % limits.ELEMENTWISE_LANES == 0
        return is_aligned and indices[-1].same_as(last) and not any(uses(i) for i in indices[:-1])

    def uses(index: tvm.Expr) -> bool:
        return blocks.uses_variable(index, last)

    loads = [(load.indices, load.source.shape) for load in blocks.list_loads(block)]
    accesses = [(store.indices, store.buffer.shape), *(a for a in loads if any(map(uses, a[0])))]
    return all(is_row(*access) for access in accesses)


def _computes_in_halves(block: ComputeBlock) -> bool:
    """Whether the block does more with 16-bit floats than load, choose, cast and store them: CUDA lacks vector
    arithmetic."""
    computed: list[Any] = []

    def visit(expr: tvm.Expr) -> None:
        if str(expr.ty.dtype) in HALVES and not getattr(getattr(expr, "op", None), "name", "").endswith(_CHOICE):
            computed.append(expr)

    for kind in (tvm.Call, tvm.tirx.Add, tvm.tirx.Sub, tvm.tirx.Mul, tvm.tirx.Div, tvm.tirx.Max, tvm.tirx.Min):
        tvm.structural_walk(block.node.body, (kind, visit))
    return bool(computed)


def _load_both_sides(func: tvm.PrimFunc) -> Any:
    """`func` with both values of each selection loaded before the condition is evaluated, as shared values: TVM's
    analyser refuses a variable whose value it simplifies twice.

    TVM emits a branch that loads one value after the condition's own load has arrived. Only elementwise blocks may load
    both: their operands have an element at every position. Values without loads stay as they are, because TVM fails to
    analyse variables bound to products of an index and a parameter."""

    def bind_sides(choice: Any) -> Any:
        sides = (choice.true_value, choice.false_value)
        if not any(map(_has_load, sides)):
            return choice
        variables = [tvm.tirx.Var("side", str(side.ty.dtype)) for side in sides]
        expr = tvm.tirx.Select(choice.condition, *variables)
        for variable, side in zip(variables, sides, strict=True):
            expr = tvm.tirx.Let(variable, shared(side), expr)
        return expr

    return tvm.structural_map(func, (tvm.tirx.Select, bind_sides))


def _has_load(value: tvm.Expr) -> bool:
    loads: list[Any] = []
    tvm.structural_walk(value, (tvm.TensorLoad, loads.append))
    return bool(loads)
