"""CPU rule for contractions: matmul in every layout, and convolution.

It takes one reduction block `result[..., row, ..., column] += x[row, k] * y[k, column]` of static extents, with spatial
blocks around it, and produces

    parallel over the other axes, cache blocks of rows and panels of columns
        loop over the register tiles of a cache block
            loop over k: add an outer product to the tile (rows unrolled, columns vectorised)
            store the tile

- The operand that moves with the column is copied into panels of one tile's width, so that each step of k reads one
  contiguous vector. The other operand is packed likewise unless it is already contiguous along k.
- The tile is at most 8 rows by 2 vectors: 16 accumulators, which stay in 32 vector registers for all of k. With 16
  registers it is at most 6 rows, where these divide the rows: four registers have the operands.
- A cache block holds as many rows as fit in the second-level cache while all panels pass by.
"""

from __future__ import annotations

from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.intrinsic import dtype_of
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.elementwise import (
    disable_checks,
    inline_producers,
    schedule_spatial_block,
)
from meta.backend.tvm.target import choose, choose_divisor
from meta.records import record


@record
class Contraction:
    """Block axes of the register tile's rows and columns, and the read operand that moves with the columns."""

    row_axis: int
    column_axis: int
    column_operand: int


@record
class _Tile:
    """Rows and columns of a register tile, and tiles (in the direction of rows) of a cache block."""

    rows: int
    columns: int
    tiles_per_block: int


def schedule_contraction(sch: tvm.Schedule) -> Any:
    """Rule: operands packed into panels, register tiles of the result. Needs tiles that divide rows and columns."""
    sch = inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    reductions = [b for b in all_blocks if b.is_reduction]
    if len(reductions) != 1 or not all(b.is_spatial or b.is_reduction for b in all_blocks):
        return None
    (reduction_block,) = reductions
    contraction = match_contraction(reduction_block)
    products = blocks.volume(reduction_block.extents)
    if contraction is None or products is None or products < limits.LEAST_PACKED_PRODUCTS:
        return None
    tile = _choose_tile(reduction_block, contraction)
    if tile is None:
        return None
    _pack_operand(sch, reduction_block, contraction.column_operand, contraction.column_axis, tile.columns)
    row_operand = 1 - contraction.column_operand
    if not _is_contiguous_along_sum(reduction_block, row_operand):
        reduction_block = _find_reduction(sch)
        _pack_operand(sch, reduction_block, row_operand, contraction.row_axis, tile.rows)
    _tile_loops(sch, _find_reduction(sch), contraction, tile, parallel=products >= limits.PARALLEL_WORK)
    sch = disable_checks(sch)
    spatial_names = {b.name for b in all_blocks if b.is_spatial}
    for block in blocks.list_blocks(sch):
        if block.name in spatial_names:
            schedule_spatial_block(sch, block)
    return sch


def match_contraction(block: ComputeBlock) -> Contraction | None:
    """The axes of `x[row, k] * y[k, column]`, summed over k; None if the block does not multiply two such operands."""
    loads = blocks.list_loads(block)
    if len(loads) != 2 or len(block.node.reads) != 2 or len(block.node.writes) != 1 or not block.node.writes[0].region:
        return None
    spatial_axes = [i for i, kind in enumerate(block.kinds) if kind == "S" and block.extents[i] != 1]
    variables = [v.var for v in block.node.iter_vars]
    load_axes = [
        {i for i in spatial_axes if any(blocks.uses_variable(e, variables[i]) for e in load.indices)} for load in loads
    ]
    last_index = block.node.writes[0].region[-1].min
    column_axis = next((i for i in spatial_axes if variables[i].same_as(last_index)), None)
    if column_axis is None:
        return None
    for position in (1, 0):
        own_axes, other_axes = load_axes[position], load_axes[1 - position]
        row_axes = [i for i in spatial_axes if i in other_axes - own_axes]
        if column_axis in own_axes - other_axes and row_axes:
            source = loads[position].source
            operand = next((k for k, r in enumerate(block.node.reads) if r.source.same_as(source)), None)
            return None if operand is None else Contraction(row_axes[-1], column_axis, operand)
    return None


def _choose_tile(block: ComputeBlock, contraction: Contraction) -> _Tile | None:
    """Tile sizes that divide the extents, or None: a tail would leave the tile's loops with bounds checks."""
    rows, columns = block.extents[contraction.row_axis], block.extents[contraction.column_axis]
    result_bits = blocks.element_bits(block.written_buffers[0])
    native = targets.lanes(result_bits)
    few_rows = sorted(limits.CONTRACTION_TILE_ROWS, key=lambda r: 2 * r > targets.vector_registers() - 4)
    row_sizes = [r for r in (*few_rows, 12) if rows % r == 0]
    column_sizes = [c for c in (2 * native, native, 4 * native) if columns % c == 0]
    if not row_sizes or not column_sizes:
        return None
    tile_rows = choose("tile_rows", row_sizes[0], row_sizes)
    tile_columns = choose("tile_lanes", column_sizes[0], column_sizes)
    depth = blocks.volume(block.extents_of("R")) or 1
    tiles = rows // tile_rows
    cached_tiles = max(limits.CACHE_BLOCK_BYTES * 8 // (result_bits * depth * tile_rows), 1)
    tiles_per_block = next(n for n in range(min(tiles, cached_tiles), 0, -1) if tiles % n == 0)
    tiles_per_block = choose_divisor("block_tiles", tiles_per_block, tiles)
    return _Tile(tile_rows, tile_columns, tiles_per_block)


def _find_reduction(sch: tvm.Schedule) -> ComputeBlock:
    """The only reduction block, with the axes that packing has left it."""
    return next(b for b in blocks.list_blocks(sch) if b.is_reduction)


def _pack_operand(sch: tvm.Schedule, block: ComputeBlock, operand: int, axis: int, panel_width: int) -> None:
    """Copy an operand into panels of `panel_width` along a block axis: a step of the sum reads adjacent elements."""
    copy = sch.reindex(block.rv, ("read", operand))
    operand_axes = [i for i in range(len(block.kinds)) if _depends_on(block, operand, i)]
    panel_axis = operand_axes.index(axis)

    def panels(*indices: Any) -> list[Any]:
        rest = [v for i, v in enumerate(indices) if i != panel_axis]
        return [indices[panel_axis] // panel_width, *rest, indices[panel_axis] % panel_width]

    dtype = dtype_of(block.node.iter_vars[0].var)
    layout = tvm.IndexMap.from_func(panels, ndim=len(operand_axes), index_dtype=dtype)
    sch.transform_layout(block.rv, ("read", operand), layout)
    loops = sch.get_loops(copy)
    outer, inner = sch.split(loops[panel_axis], factors=[None, panel_width])
    rest = [loop for i, loop in enumerate(loops) if i != panel_axis]
    sch.reorder(outer, *rest, inner)


def _depends_on(block: ComputeBlock, operand: int, axis: int) -> bool:
    """Whether an operand's indices use a block axis."""
    variable = block.node.iter_vars[axis].var
    return any(blocks.uses_variable(e, variable) for load in _list_loads(block, operand) for e in load.indices)


def _is_contiguous_along_sum(block: ComputeBlock, operand: int) -> bool:
    """Whether successive steps of the sum read adjacent elements of an operand."""
    variable = block.node.iter_vars[-1].var
    return all(blocks.uses_variable(load.indices[-1], variable) for load in _list_loads(block, operand))


def _list_loads(block: ComputeBlock, operand: int) -> list[Any]:
    source = block.node.reads[operand].source
    return [load for load in blocks.list_loads(block) if load.source.same_as(source)]


def _tile_loops(sch: tvm.Schedule, block: ComputeBlock, contraction: Contraction, tile: _Tile, parallel: bool) -> None:
    """Order the loops: other axes, cache blocks, column panels, tiles of the cache block, the sum, rows, columns."""
    row_axis, column_axis = contraction.row_axis, contraction.column_axis
    loops = blocks.list_loops(sch, block)
    row = next(loop.rv for loop in loops if row_axis in loop.axes)
    column = next(loop.rv for loop in loops if column_axis in loop.axes)
    outer = [loop.rv for loop in loops if loop.kind == "S" and not {row_axis, column_axis} & loop.axes]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    cache_block, row, tile_row = sch.split(row, factors=[None, tile.tiles_per_block, tile.rows])
    column, tile_column = sch.split(column, factors=[None, tile.columns])
    sch.reorder(*outer, cache_block, column, row, *reduced, tile_row, tile_column)
    accumulators = sch.cache_write(block.rv, 0, "local")
    sch.reverse_compute_at(accumulators, row)
    sch.vectorize(tile_column)
    sch.unroll(tile_row)
    sch.vectorize(sch.get_loops(accumulators)[-1])
    if parallel:
        sch.parallel(sch.fuse(*outer, cache_block, column))
    initialisation = sch.decompose_reduction(block.rv, reduced[0])
    sch.unroll(sch.get_loops(initialisation)[-2])
