"""CUDA schedule of last resort: one kernel per block, for any function.

| block | threads |
| --- | --- |
| reduction of a contiguous axis, or to one element | one block of threads per result; they share the reduction |
| reduction of outer axes | parts in another kernel, see `columns` |
| other | one thread per result, or per several results of a spatial block |

A spatial block that is the only consumer of a reduction with one thread per result, such as the cast or the division
after a sum, is computed in the threads of that reduction, so that its results stay in registers.
"""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import MAX_THREADS, WARP
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.rows import reduces_contiguous_axis
from meta.backend.tvm.schedule.gpu.column_sums import merge_column_sums
from meta.backend.tvm.schedule.gpu.columns import reduces_outer_axes, split_into_parts
from meta.backend.tvm.schedule.gpu.elementwise import bind_threads, choose_thread_elements, inline_producers
from meta.backend.tvm.schedule.gpu.rows import is_single_row

_LONG_SUM: Final = 8 * MAX_THREADS
"""Elements from which on the largest block of threads shares a sum."""


def schedule_outer_reductions(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: separate kernels, for functions of spatial and reduction blocks with a reduction of outer axes."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if not all(b.is_spatial or b.is_reduction for b in all_blocks) or not any(map(reduces_outer_axes, all_blocks)):
        return None
    return schedule_separately(merge_column_sums(sch.mod["main"]))


def schedule_pairs(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: separate kernels with one thread per result, for reductions to several values at once, as to a maximum and
    its index."""
    del target
    has_pairs = any(map(_reduces_pairs, blocks.read_blocks(func)))
    return schedule_separately(func, share_reductions=False) if has_pairs else None


def _reduces_pairs(block: ComputeBlock) -> bool:
    """Whether the block reduces to several values at once."""
    return block.is_reduction and len(block.node.writes) > 1


def schedule_windows(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: one thread per result, for pooling with small windows. By rows, most threads of a block would be idle."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if len(all_blocks) != 1 or not all_blocks[0].is_reduction or len(all_blocks[0].node.reads) != 1:
        return None
    elements = blocks.volume(all_blocks[0].extents_of("R"))
    is_small = elements is not None and elements <= limits.THREAD_WINDOW and not reduces_contiguous_axis(all_blocks[0])
    return schedule_separately(func, share_reductions=False) if is_small else None


def schedule_separately(func: tvm.PrimFunc, share_reductions: bool = True) -> Any:
    """`func` with one kernel per block. Without `share_reductions`, each result is computed by one thread."""
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    reductions, others = list[ComputeBlock](), list[ComputeBlock]()
    for block in blocks.list_blocks(sch):
        if share_reductions and reduces_outer_axes(block) and blocks.volume(block.extents) != 0:
            unscheduled = split_into_parts(sch, block)
            reductions.extend([unscheduled] if unscheduled is not None else [])
        elif block.is_reduction:
            reductions.append(block)
        else:
            others.append(block)
    fused_names = [
        consumer.name
        for block in reductions
        for consumer in _schedule_kernel(sch, block, share_reductions, _find_consumer(sch, block))
    ]
    for block in others:
        if block.name not in fused_names:
            _schedule_kernel(sch, block, share_reductions)
    return sch.mod["main"]


def _schedule_kernel(
    sch: tvm.Schedule, block: ComputeBlock, share_reductions: bool, consumer: ComputeBlock | None = None
) -> list[ComputeBlock]:
    """Schedule a block as one kernel; fuses `consumer` if given and possible; returns the fused blocks."""
    copies = list[Any]()
    is_empty = blocks.volume(block.extents) == 0
    if (
        _reduces_pairs(block) and not is_empty
    ):  # the CUDA compiler would store some of the values in each step of the reduction
        kept_results = range(len(block.node.writes))[1 if consumer is not None else 0 :]
        copies.extend(sch.cache_write(block.rv, i, "local") for i in kept_results)
    loops = blocks.list_loops(sch, block)
    if not loops and not isinstance(block.node.body, tvm.BufferStore):
        return []  # a hand-written block, which binds its own threads
    spatial, reduced = blocks.partition_loops(loops)
    is_contiguous = block.kinds.endswith("R") and reduces_contiguous_axis(block)
    is_shareable = spatial and block.is_reduction and not is_empty and (is_contiguous or is_single_row([block]))
    if share_reductions and is_shareable:
        sch.reorder(*spatial, *reduced)
        _, thread = sch.split(blocks.fuse_loops(sch, reduced), factors=[None, _choose_sum_threads(block)])
        sch.bind(blocks.fuse_loops(sch, spatial), "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        return []
    if not spatial or blocks.volume(block.extents_of("S")) == 0:
        reduced = [loop.rv for loop in loops]
        spatial = [sch.add_unit_loop(loops[0].rv if loops else block.rv)]
    sch.reorder(*spatial, *reduced)
    thread_elements = choose_thread_elements(block) if block.is_spatial and consumer is None else 1
    thread = bind_threads(sch, blocks.fuse_loops(sch, spatial), thread_elements)
    for copy in copies:
        sch.reverse_compute_at(copy, thread)
    is_fused = consumer is not None and _fuse_consumer(sch, block, consumer, thread)
    if block.is_reduction:
        first_reduction = next((loop.rv for loop in loops if loop.kind == "R"), None)
        if first_reduction is not None:
            sch.decompose_reduction(block.rv, first_reduction)
    return [consumer] if consumer is not None and is_fused else []


def _find_consumer(sch: tvm.Schedule, block: ComputeBlock) -> ComputeBlock | None:
    """The spatial block that can be fused into `block`, or None. It alone reads the results of `block`, each once, and
    reads no other block. A result of the function cannot stay in registers, so a block whose first result is one has no
    consumer."""
    if any(block.written_buffers[0].same_as(p) for p in sch.mod["main"].params):
        return None
    consumers = [blocks.get_block(sch, rv) for rv in sch.get_consumers(block.rv)]
    results = [e for e in block.extents_of("S") if e != 1]
    if len(consumers) != 1 or not consumers[0].is_spatial or len(sch.get_producers(consumers[0].rv)) != 1:
        return None
    positions = [e for e in consumers[0].extents if e != 1]
    same_extents = len(positions) == len(results) and all(map(blocks.equal_extents, positions, results))
    return consumers[0] if same_extents else None


def _fuse_consumer(sch: tvm.Schedule, block: ComputeBlock, consumer: ComputeBlock, thread: Any) -> bool:
    """Compute the consumer in the threads of `block`, whose results then stay in registers; False if TVM cannot."""
    try:
        sch.reverse_compute_at(consumer.rv, thread)
    except tvm.ScheduleError:
        return False
    sch.set_scope(block.rv, 0, "local")
    return True


def _choose_sum_threads(block: ComputeBlock) -> int:
    """Threads that share a sum: a warp for few elements, and for one symbolic axis."""
    reduced = block.extents_of("R")
    total = blocks.volume(reduced)
    if is_single_row([block]) or (total is not None and total >= _LONG_SUM):
        return MAX_THREADS
    return limits.ROW_THREADS if len(reduced) > 1 or (total is not None and total >= limits.ROW_THREADS) else WARP
