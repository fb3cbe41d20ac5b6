"""CUDA rules for rows (softmax, norms, reductions of inner axes) and for reductions to one element.

Both put all blocks of the function into one kernel and keep intermediate results in shared memory:

- `schedule_rows`: a block of 256 threads per row; every reduction along the row is shared by these threads.
- `schedule_short_rows`: the same for several rows of a block of 256 threads, where each thread has several loads.
- `schedule_single_row`: a block of 1024 threads, for functions of one row. A single large reduction runs in two
  kernels: 512 blocks of threads reduce a part each, and one block of threads reduces the results of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import MAX_THREADS, WARP
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.rows import count_row_axes, reduces_contiguous_axis
from meta.backend.tvm.schedule.gpu.columns import floor_power_of_two
from meta.backend.tvm.schedule.gpu.elementwise import inline_producers


def schedule_rows(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: a block of threads per row. Needs a reduction and a row axis common to all blocks."""
    del target
    return _schedule_rows(func, 1)


def schedule_short_rows(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: several rows per block of threads. Needs one reduction, of inner axes of known size, and one result for
    each row in every block."""
    del target
    all_blocks = blocks.list_blocks(inline_producers(tvm.Schedule(func, error_render_level="fast")))
    reductions = [b for b in all_blocks if b.is_reduction]
    counts = {blocks.volume(b.extents_of("S")) for b in all_blocks}
    count = counts.pop()
    length = blocks.volume(reductions[0].extents_of("R")) if len(reductions) == 1 else None
    if length is None or count is None or counts or length < WARP or not reduces_contiguous_axis(reductions[0]):
        return None
    # A thread has at least the loads that are in flight at the same time, and the GPU has enough blocks.
    threads = WARP * floor_power_of_two(max(length // (WARP * limits.ROW_STEPS), 1))
    rows = min(limits.ROW_THREADS // threads, floor_power_of_two(count // limits.TOTAL_PARTS))
    if rows > 1 and count % rows:  # warps without a row wait for no others
        rows = limits.ROW_THREADS // WARP
    return _schedule_rows(func, rows) if rows > 1 else None


def _schedule_rows(func: tvm.PrimFunc, rows: int) -> Any:
    """A block of threads for so many rows."""
    threads = limits.ROW_THREADS // rows
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if not all(b.is_spatial or b.is_reduction for b in all_blocks) or all(b.is_spatial for b in all_blocks):
        return None
    if is_single_row(all_blocks):
        return None
    row_axes = count_row_axes(all_blocks)
    if row_axes == 0 or any(b.is_reduction and "S" in b.kinds[row_axes:] for b in all_blocks[:-1]):
        return None  # a row of reduced values may exceed shared memory
    for block in all_blocks:
        blocks.fuse_loops(sch, sch.get_loops(block.rv)[:row_axes])
        _bind_row(sch, sch.get_loops(block.rv)[1:], block.kinds[row_axes:], block, threads)
    return _merge_rows(sch, all_blocks, rows)


def schedule_single_row(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: one block of threads for reductions to one element. Needs spatial extents of 1 in all blocks."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    reductions = [b for b in all_blocks if b.is_reduction]
    if not reductions or not all(b.is_spatial or b.is_reduction for b in all_blocks) or not is_single_row(all_blocks):
        return None
    for block in all_blocks:
        loops = sch.get_loops(block.rv)
        sch.add_unit_loop(loops[0] if loops else block.rv)
    if len(reductions) == 1 and len(reductions[0].node.writes) == 1 and _parts_divide(reductions[0]):
        _split_into_parts(sch, reductions[0])
    for block in all_blocks:
        current_loops = blocks.list_loops(sch, blocks.get_block(sch, block.rv))
        reduction_loops = sum(loop.kind == "R" for loop in current_loops)
        kinds = "S" * (len(current_loops) - 1 - reduction_loops) + "R" * reduction_loops
        _bind_row(sch, sch.get_loops(block.rv)[1:], kinds, block, MAX_THREADS)
    return _merge_rows(sch, all_blocks)


def is_single_row(all_blocks: Sequence[ComputeBlock]) -> bool:
    """Whether every spatial extent is 1."""
    return all(extent == 1 for block in all_blocks for extent in block.extents_of("S"))


def _parts_divide(block: ComputeBlock) -> bool:
    """Whether every thread of every part has elements: TVM leaves the result of an empty part unset."""
    total = blocks.volume(block.extents)
    return total is not None and total > 0 and total % (limits.TOTAL_PARTS * limits.ROW_THREADS) == 0


def _split_into_parts(sch: tvm.Schedule, block: ComputeBlock) -> None:
    """Split a reduction into parts, one per block of threads; `block` is left to reduce their results."""
    _, reduced = blocks.partition_loops(blocks.list_loops(sch, blocks.get_block(sch, block.rv)))
    part, _ = sch.split(blocks.fuse_loops(sch, reduced), factors=[limits.TOTAL_PARTS, None])
    partial = sch.rfactor(part, 0)
    loops = blocks.list_loops(sch, blocks.get_block(sch, partial))
    part = next(loop.rv for loop in loops if 0 in loop.axes)
    spatial = [loop.rv for loop in loops if loop.kind == "S" and 0 not in loop.axes]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(part, *spatial, *reduced)
    sch.bind(part, "blockIdx.x")
    _, thread = sch.split(blocks.fuse_loops(sch, reduced), factors=[None, limits.ROW_THREADS])
    sch.bind(thread, "threadIdx.x")


def _bind_row(sch: tvm.Schedule, loops: Any, kinds: str, block: ComputeBlock, threads: int) -> None:
    """Bind the loops of a block inside its row to threads: the spatial ones, or the reduction if it has one result."""
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    if spatial and reduced:
        sch.reorder(*spatial, *reduced)
    shared_loops = reduced if reduced and is_single_row([block]) else spatial or reduced
    if not shared_loops:
        sch.bind(sch.add_unit_loop(block.rv), "threadIdx.x")
        return
    loop = blocks.fuse_loops(sch, shared_loops)
    count, steps = _divide_row(sch, loop, threads) if reduced and not _is_sum(block) else (threads, 1)
    _, step, thread = sch.split(loop, factors=[None, steps, count])
    if steps > 1:
        sch.unroll(step)
    sch.bind(thread, "threadIdx.x")


def _divide_row(sch: tvm.Schedule, loop: tvm.LoopRV, threads: int) -> tuple[int, int]:
    """Threads that share the reduction of a row, and the steps of a thread whose loads are in flight at the same time.

    Of the sizes that divide the row, so that no load waits for a bound check, those with the most steps."""
    length = blocks.as_int(sch.get(loop).extent)
    if threads != limits.ROW_THREADS or not isinstance(length, int) or length < limits.LONG_MAXIMUM_ROW:
        return threads, 1
    counts = range(threads, threads // 2 - 1, -WARP)
    steps, count = max((steps, count) for steps in range(1, limits.ROW_STEPS + 1) for count in counts
                       if length % (steps * count) == 0 or (steps, count) == (1, threads))  # fmt: skip
    return count, steps


def _is_sum(block: ComputeBlock) -> bool:
    """Whether a reduction adds: sums are divided into steps afterwards, see `summation`."""
    store = block.node.body
    return isinstance(store, tvm.BufferStore) and isinstance(store.value, tvm.tirx.Add)


def _merge_rows(sch: tvm.Schedule, all_blocks: Sequence[ComputeBlock], rows: int = 1) -> Any:
    """Merge and bind the row loops of all blocks, put intermediate results in shared memory; returns the function."""
    params = list(sch.mod["main"].params)
    # TVM merges plain loops only, so the row loop is bound after it is merged.
    row_loops = [sch.get_loops(b.rv)[0] for b in all_blocks]
    row = sch.merge(*row_loops) if len(row_loops) > 1 else row_loops[0]
    if rows > 1:
        row, inner = sch.split(row, factors=[None, rows])
        sch.bind(inner, "threadIdx.y")
    sch.bind(row, "blockIdx.x")
    for block in all_blocks:
        for i, buffer in enumerate(block.written_buffers):
            if not any(buffer.same_as(p) for p in params):
                # All threads of a row get its result. TVM does not see that they share it, and would not wait for it.
                sch.set_scope(block.rv, i, "shared" if rows == 1 else "local")
    return sch.mod["main"]
