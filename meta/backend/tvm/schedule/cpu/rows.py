"""CPU rules for reductions and for rows: softmax, norms and their gradients.

`schedule_rows` takes spatial and reduction blocks whose leading spatial axes agree, and produces

    parallel loop over rows
        the passes over the row, one per block, while the row is in the first-level cache

`schedule_separately` takes any spatial and reduction blocks and gives each its own loop nest. In both, a reduction is
vectorised by the axis that it reduces:

- contiguous axis: `rfactor` splits it into partial sums, one per vector lane (and in long rows over four registers, to
  hide the latency of an addition), and a second block reduces the lanes;
- any other axis: LLVM vectorises the loop over columns, in each step of the reduction. Small windows are unrolled
  inside it. Tiles of columns with accumulators in registers are faster only for overlapping windows, as in
  convolutions; elsewhere they read rows in short pieces (the sum of 1024x1024 over its first axis took 105 us with
  them, 48 without).

The initial value is written before the loops of a reduction: that is faster than a test per element, and correct for
reductions over no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.elementwise import (
    PARTITION_HINT,
    disable_checks,
    inline_producers,
    is_parallel_work,
    schedule_spatial_block,
)
from meta.backend.tvm.schedule.nest import LANE_SUM
from meta.backend.tvm.target import choose


def schedule_rows(sch: tvm.Schedule) -> Any:
    """Rule: one loop over rows, in it all passes over a row. Needs a reduction and a row axis common to all blocks."""
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if not all(b.is_spatial or b.is_reduction for b in all_blocks) or all(b.is_spatial for b in all_blocks):
        return None
    row_axes = count_row_axes(all_blocks)
    if blocks.volume(all_blocks[0].extents[:row_axes]) == 1:
        return None
    _schedule_passes(sch, all_blocks, row_axes)
    sch = disable_checks(sch)
    all_blocks = blocks.list_blocks(sch)
    initialise_first(sch, all_blocks)
    row_loops = [sch.get_loops(b.rv)[:row_axes] for b in all_blocks]
    if len(all_blocks) > 1:
        # `compute_at` would drop the bounds checks of split loops, and the kernel would read past the end of rows.
        sch.merge(*(loops[-1] for loops in row_loops))
    work = [blocks.volume(b.extents) for b in all_blocks]
    if all(w is not None for w in work) and sum(w or 0 for w in work) >= limits.PARALLEL_WORK:
        outer = sch.get_loops(all_blocks[0].rv)[:row_axes]
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
    return sch


def schedule_separately(sch: tvm.Schedule) -> Any:
    """Rule: one loop nest per block, for blocks without a common row axis."""
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if not all(b.is_spatial or b.is_reduction for b in all_blocks):
        return None
    _schedule_passes(sch, all_blocks, 0)
    sch = disable_checks(sch)
    all_blocks = blocks.list_blocks(sch)
    for block in all_blocks:
        outermost = next((loop for loop in blocks.list_loops(sch, block) if not _is_unit(sch, loop.rv)), None)
        if outermost is None or outermost.kind != "S" or not block.is_reduction:
            continue
        if is_parallel_work(block, blocks.volume(block.extents)):
            sch.parallel(outermost.rv)
    initialise_first(sch, all_blocks)
    return sch


def count_row_axes(all_blocks: Sequence[ComputeBlock]) -> int:
    """The number of leading spatial axes over which all blocks can share loops.

    Such an axis has the same extent in every block, and a block reads produced values only from its own row."""
    row_axes = min(
        len(b.kinds) - len(b.kinds.lstrip("S")) - (b.is_reduction and not reduces_contiguous_axis(b))
        for b in all_blocks
    )
    first = all_blocks[0].extents
    produced = [buffer for b in all_blocks for buffer in b.written_buffers]
    for axis in range(row_axes):
        if not all(
            blocks.equal_extents(b.extents[axis], first[axis]) and _stays_in_row(b, axis, produced) for b in all_blocks
        ):
            return axis
    return row_axes


def _stays_in_row(block: ComputeBlock, axis: int, produced: list[Any]) -> bool:
    """Whether the block accesses dimension `axis` of every produced buffer at its own variable of that axis."""
    var = block.node.iter_vars[axis].var
    regions = [*block.node.writes, *(r for r in block.node.reads if any(r.source.same_as(p) for p in produced))]
    return all(len(r.region) > axis and r.region[axis].min.same_as(var) for r in regions)


def reduces_contiguous_axis(block: ComputeBlock) -> bool:
    """Whether successive steps of the innermost reduction read adjacent elements."""
    last = block.node.iter_vars[-1].var
    moving = [load for load in blocks.list_loads(block) if any(blocks.uses_variable(i, last) for i in load.indices)]
    return bool(moving) and all(
        _is_adjacent(block, load.indices[-1], last)
        and not any(blocks.uses_variable(i, last) for i in load.indices[:-1])
        for load in moving
    )


def _is_adjacent(block: ComputeBlock, index: Any, variable: Any) -> bool:
    """Whether an index is the variable, or its sum with what depends neither on it nor on results, as windows do."""
    if not isinstance(index, tvm.tirx.Add):
        return index.same_as(variable)
    others = [variable, *(v.var for v, kind in zip(block.node.iter_vars, block.kinds, strict=True) if kind == "S")]
    pairs = ((index.a, index.b), (index.b, index.a))
    return any(
        _is_adjacent(block, a, variable) and not any(blocks.uses_variable(b, v) for v in others) for a, b in pairs
    )


def _schedule_passes(sch: tvm.Schedule, all_blocks: list[ComputeBlock], row_axes: int) -> None:
    """Schedule the loops of each block below its `row_axes` row loops."""
    lane_axes = _split_sums(sch, all_blocks)
    for block in blocks.list_blocks(sch):
        if block.is_spatial:
            schedule_spatial_block(sch, block, row_axes)
        elif block.name in lane_axes:
            _vectorize_partial_sums(sch, block, lane_axes[block.name])
        elif not reduces_contiguous_axis(block) and block.kinds.count("S") > row_axes:
            _order_column_loops(sch, block, row_axes)


def initialise_first(sch: tvm.Schedule, all_blocks: list[ComputeBlock]) -> None:
    """Write the initial value of every reduction before its loops.

    TE's form writes it in the first iteration, so a reduction over no elements would leave its result unset. This comes
    late because most other primitives reject the incomplete blocks that it leaves."""
    for block in all_blocks:
        if block.is_reduction:
            first_reduction = next(loop.rv for loop in blocks.list_loops(sch, block) if loop.kind == "R")
            sch.decompose_reduction(block.rv, first_reduction)


def _split_sums(sch: tvm.Schedule, all_blocks: list[ComputeBlock]) -> dict[str, int]:
    """Split each reduction of a contiguous axis into partial sums, one per vector lane of one or several registers.

    Returns, by name of the block that computes the partial sums, how many trailing axes of its result hold them:
    (lanes) or (registers, lanes)."""
    lane_axes: dict[str, int] = {}
    reductions = [b for b in all_blocks if b.is_reduction and reduces_contiguous_axis(b) and len(b.node.writes) == 1]
    for block in all_blocks if reductions else ():
        # `rfactor` fails if a neighbour of the split block has no loop, as a 0-d result has none.
        if not sch.get_loops(block.rv):
            sch.add_unit_loop(block.rv)
    for block in reductions:
        native = targets.lanes(block.element_bits)
        extent = _join_reduced_axes(sch, block)
        if isinstance(extent, int) and extent < limits.LEAST_ROW_VECTORS * native:
            continue
        is_long = isinstance(extent, int) and extent >= limits.LONG_ROW_VECTORS * native
        is_long = is_long and extent % (limits.LONG_ROW_REGISTERS * native) < native
        registers = limits.LONG_ROW_REGISTERS if is_long or _is_whole_product(block) else 1
        if isinstance(extent, int):
            counts = [n for n in (1, 2, 4, 8) if n == registers or extent % (n * native) == 0]
            registers = choose("sum_registers", registers, counts)
        kept_axes = len(block.kinds.rstrip("R"))
        register_factor = [registers] if registers > 1 else []
        *_, lane = sch.split(sch.get_loops(block.rv)[-1], factors=[None, *register_factor, native])
        partial = sch.rfactor(lane, kept_axes)
        sch.annotate(block.rv, LANE_SUM, 1)
        lane_axes[str(sch.get(partial).name_hint)] = 1
        if registers > 1:
            # Registers before lanes: every access is one whole vector, so that LLVM keeps the sums in registers.
            partial = sch.rfactor(sch.get_loops(partial)[-2], kept_axes)
            lane_axes[str(sch.get(partial).name_hint)] = 2
    return lane_axes


def _is_whole_product(block: ComputeBlock) -> bool:
    """Whether the block multiplies all elements of a symbolic number: in one register, multiplications would wait for
    each other. For sums, `summation` adds several numbers at once."""
    is_whole = blocks.volume(block.extents_of("S")) == 1 and blocks.volume(block.extents_of("R")) is None
    return is_whole and isinstance(block.node.body, tvm.BufferStore) and isinstance(block.node.body.value, tvm.tirx.Mul)


def _join_reduced_axes(sch: tvm.Schedule, block: ComputeBlock) -> Any:
    """Fuse the loops over the last two axes if they are adjacent in the memory of all operands, and return the extent
    of the last loop. With three axes, or in temporary buffers, whose strides TVM changes, flat positions would still be
    divided by symbolic extents: a division by a size of 0 ends the process."""
    reduced = [v.var for v in block.node.iter_vars][len(block.kinds.rstrip("R")) :]
    if len(reduced) < 2 or 1 in block.extents[-2:] or blocks.computes_of_positions(block):
        return block.extents[-1]
    params = list(sch.mod["main"].params)
    for load in blocks.list_loads(block):
        if not any(load.source.same_as(p) for p in params):
            return block.extents[-1]
        if not _is_still(load.indices, reduced[-2:]) and not (
            len(load.indices) >= 2
            and all(i.same_as(v) for i, v in zip(load.indices[-2:], reduced[-2:], strict=True))
            and _is_still(load.indices[:-2], reduced[-2:])
            and blocks.equal_extents(blocks.as_int(load.source.shape[-1]), block.extents[-1])
        ):
            return block.extents[-1]
    sch.fuse(*sch.get_loops(block.rv)[-2:])
    return blocks.volume(block.extents[-2:])


def _is_still(indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether no index depends on the variables."""
    return not any(blocks.uses_variable(i, v) for v in variables for i in indices)


def _vectorize_partial_sums(sch: tvm.Schedule, block: ComputeBlock, lane_axes: int) -> None:
    """Move the loops over the last `lane_axes` axes of the result innermost: registers unrolled, lanes vectorised."""
    loops = blocks.list_loops(sch, block)
    indices = [r.min for r in block.node.writes[0].region][-lane_axes:]
    axes = [next(i for i, v in enumerate(block.node.iter_vars) if v.var.same_as(index)) for index in indices]
    *registers, lane = (next(loop.rv for loop in loops if axis in loop.axes) for axis in axes)
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(*reduced, *registers, lane)
    for register in registers:
        sch.unroll(register)
    sch.vectorize(lane)
    sch.annotate(reduced[-1], PARTITION_HINT, 1)


def _order_column_loops(sch: tvm.Schedule, block: ComputeBlock, row_axes: int) -> None:
    """Loop over the columns, the last spatial axis, in all steps of the reduction except the steps of a small window.

    If no other loop can be parallel, the columns are divided into parts for several threads."""
    loops = blocks.list_loops(sch, block)
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    column_axis = len(block.kinds.rstrip("R")) - 1
    column = next(loop.rv for loop in loops[row_axes:] if column_axis in loop.axes)
    tile_width = _choose_tile_width(block, column_axis)
    if tile_width is not None:
        _, column = sch.split(column, factors=[None, tile_width])
        sch.reorder(*reduced, column)
        sch.vectorize(column)
        return
    window_axes = _count_window_axes(block.extents_of("R"))
    steps, window = reduced[: len(reduced) - window_axes], reduced[len(reduced) - window_axes :]
    outer = [loop.rv for loop in loops if loop.kind == "S" and not loop.rv.same_as(column)]
    parts = list[Any]()
    if all(_is_unit(sch, loop) for loop in outer) and is_parallel_work(block, blocks.volume(block.extents)):
        part, column = sch.split(column, factors=[None, _choose_part_width(block.extents[column_axis])])
        parts.append(part)
    sch.reorder(*parts, *outer, *steps, column, *window)
    for loop in window:
        sch.unroll(loop)


def _choose_tile_width(block: ComputeBlock, column_axis: int) -> int | None:
    """Columns of a register tile of overlapping windows; None for other blocks and if no tile divides the columns."""
    columns, steps = block.extents[column_axis], blocks.volume(block.extents_of("R"))
    if not isinstance(columns, int) or steps is None or steps <= limits.UNROLLED_STEPS:
        return None
    if not _has_overlapping_windows(block, column_axis):
        return None
    lanes = targets.lanes(block.element_bits)
    widths = [
        width
        for registers in limits.WINDOW_TILE_REGISTERS
        for width in range(registers * lanes, max((registers - 1) * lanes, lanes // 4), -max(lanes // 4, 1))
        if columns % width == 0
    ]
    default = widths[0] if widths and steps <= limits.TILED_STEPS else 0
    return choose("window_tile", default, [*widths, 0]) or None


def _has_overlapping_windows(block: ComputeBlock, column_axis: int) -> bool:
    """Whether the windows of successive columns start at successive elements."""
    variables = [v.var for v in block.node.iter_vars]
    column, reduced = variables[column_axis], variables[column_axis + 1 :]
    return any(
        load.indices
        and blocks.uses_variable(load.indices[-1], column)
        and any(blocks.uses_variable(load.indices[-1], k) for k in reduced)
        and not _is_scaled(load.indices[-1], column)
        for load in blocks.list_loads(block)
    )


def _is_scaled(index: tvm.Expr, variable: tvm.Var) -> bool:
    """Whether the index multiplies or divides the variable."""
    scaled = False

    def visit(expr: tvm.Expr) -> None:
        nonlocal scaled
        scaled = scaled or blocks.uses_variable(expr, variable)

    for kind in (tvm.tirx.Mul, tvm.tirx.FloorDiv, tvm.tirx.FloorMod):
        tvm.structural_walk(index, (kind, visit))
    return scaled


def _is_unit(sch: tvm.Schedule, loop: tvm.LoopRV) -> bool:
    return blocks.as_int(sch.get(loop).extent) == 1


def _choose_part_width(columns: int) -> int:
    """The most columns of a part that divide the columns; all of them if such parts would be short."""
    widths = range(min(columns, limits.THREAD_COLUMNS), limits.THREAD_COLUMNS // 4, -1)
    return next((width for width in widths if columns % width == 0), columns)


def _count_window_axes(extents: Sequence[Any]) -> int:
    """The number of trailing axes whose steps are unrolled."""
    for axes in range(len(extents), 0, -1):
        steps = blocks.volume(extents[-axes:])
        if steps is not None and steps <= limits.UNROLLED_STEPS:
            return axes
    return 0
