"""CUDA schedule of reductions of outer axes, such as the sum of each column of a matrix.

One thread per column would leave most of the GPU idle, so the rows are split into parts. The structure is two kernels:

    kernel 1: a thread per part and column, 8 parts by 32 columns in a block, adds its rows in a register,
              4 loads at a time
    kernel 2: adds the parts of each column, up to 128 in one thread, more by 32 threads

Adjacent threads read adjacent columns, so that a warp reads 128 contiguous bytes of float32.
"""

from __future__ import annotations

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import WARP
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock


def reduces_outer_axes(block: ComputeBlock) -> bool:
    """Whether each operand that moves with a reduced axis is either contiguous along the innermost spatial axis of the
    result or constant along it, and at least one is contiguous."""
    if not block.is_reduction or "S" not in block.kinds:
        return False
    column_axis = block.kinds.rindex("S")
    if block.extents[column_axis] == 1:
        return False
    column = block.node.iter_vars[column_axis].var
    reduced = [v.var for v, kind in zip(block.node.iter_vars, block.kinds, strict=True) if kind == "R"]
    moving = [
        load
        for load in blocks.list_loads(block)
        if any(blocks.uses_variable(i, r) for i in load.indices for r in reduced)
    ]
    contiguous = [load for load in moving if load.indices[-1].same_as(column)]
    constant = [load for load in moving if not any(blocks.uses_variable(i, column) for i in load.indices)]
    return bool(contiguous) and len(contiguous) + len(constant) == len(moving)


def split_into_parts(sch: tvm.Schedule, block: ComputeBlock) -> ComputeBlock | None:
    """Split a reduction of outer axes into parts and schedule the kernel that computes them.

    Returns the block that is left to schedule: the block that reduces the parts, or `block` itself if it is too short
    to split; None if that kernel is already scheduled. The first kernel shares no reduction between threads, because
    TVM does not recognise such reductions at symbolic extents, and the threads would race."""
    parts = _count_parts(block)
    if parts < limits.COLUMN_BLOCK_PARTS or len(block.node.writes) != 1:
        return block
    spatial, reduced = blocks.partition_loops(blocks.list_loops(sch, block))
    sch.reorder(*spatial, *reduced)
    part, _ = sch.split(blocks.fuse_loops(sch, reduced), factors=[parts, None])
    try:
        partial = sch.rfactor(part, 0)
    except tvm.ScheduleError:  # TVM knows no identity element of this reducer
        return blocks.get_block(sch, block.rv)
    _schedule_partial_results(sch, blocks.get_block(sch, partial))
    if parts <= limits.COLUMN_SERIAL_PARTS:
        return blocks.get_block(sch, block.rv)
    spatial, reduced = blocks.partition_loops(blocks.list_loops(sch, blocks.get_block(sch, block.rv)))
    column_block, column = sch.split(blocks.fuse_loops(sch, spatial), factors=[None, WARP])
    _, row = sch.split(blocks.fuse_loops(sch, reduced), factors=[None, WARP])
    sch.reorder(column_block, column, row)
    sch.bind(column_block, "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    sch.bind(row, "threadIdx.y")
    return None


def _count_parts(block: ComputeBlock) -> int:
    """The number of parts: a power of two, enough to keep the GPU busy, each with the rows of a step at least."""
    rows, columns = blocks.volume(block.extents_of("R")), blocks.volume(block.extents_of("S"))
    if rows is None:
        longest = max(map(blocks.lower_bound, block.extents_of("R")))
        return min(longest // limits.COLUMN_UNROLLED_ROWS, limits.SYMBOLIC_PARTS)
    busy_parts = limits.SYMBOLIC_PARTS if columns is None else limits.BUSY_THREADS // columns
    return min(
        floor_power_of_two(busy_parts), floor_power_of_two(rows // limits.COLUMN_UNROLLED_ROWS), limits.COLUMN_PARTS
    )


def floor_power_of_two(number: int) -> int:
    """The largest power of two up to `number`; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0


def _schedule_partial_results(sch: tvm.Schedule, block: ComputeBlock) -> None:
    """One thread per part and column, which adds in a register. The part is axis 0 of the block."""
    result = sch.cache_write(block.rv, 0, "local")
    loops = blocks.list_loops(sch, blocks.get_block(sch, block.rv))
    part = next(loop.rv for loop in loops if 0 in loop.axes)
    spatial = [loop.rv for loop in loops if loop.kind == "S" and 0 not in loop.axes]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(part, *spatial, *reduced)
    part_block, part_thread = sch.split(part, factors=[None, limits.COLUMN_BLOCK_PARTS])
    column_block, column = sch.split(blocks.fuse_loops(sch, spatial), factors=[None, WARP])
    serial, unrolled = sch.split(blocks.fuse_loops(sch, reduced), factors=[None, limits.COLUMN_UNROLLED_ROWS])
    sch.reorder(part_block, column_block, part_thread, column, serial, unrolled)
    sch.unroll(unrolled)
    for loop, index in ((part_block, "blockIdx.y"), (column_block, "blockIdx.x"),
                        (part_thread, "threadIdx.y"), (column, "threadIdx.x")):  # fmt: skip
        sch.bind(loop, index)
    sch.reverse_compute_at(result, column)
    sch.decompose_reduction(block.rv, serial)
