"""CPU schedule of contractions: matmul in every layout, and convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block
from meta.backend.tvm.schedule.cpu.elementwise import PARALLEL_WORK, injective, inline_producers, unchecked
from meta.backend.tvm.te.intrinsic import dtype_of

_SMALL: Final = 1 << 14  # multiplications below which packing costs more than it saves
_BLOCK_BYTES: Final = 1 << 18  # rows that stay in the second-level cache while all columns pass by
_ROWS: Final = 8  # rows of the register tile; with two vectors a row, 16 accumulators of 32 registers


@dataclass(frozen=True, slots=True)
class Contraction:
    """Positions of the block variables that a register tile is made of, and which read operand moves with `column`."""

    row: int
    column: int
    operand: int


def contraction(sch: Any) -> Any:
    """Rule: one operand packed into panels, tiles of the result kept in registers over the whole reduction."""
    inline_producers(sch)
    found = blocks.blocks_of(sch)
    sums = [b for b in found if b.reduction]
    if len(sums) != 1 or not all(b.spatial or b.reduction for b in found):
        return None
    (main,) = sums
    roles = roles_of(main)
    work = blocks.volume(main.extents)
    if roles is None or work is None or work < _SMALL:
        return None
    rows, columns = main.extents[roles.row], main.extents[roles.column]
    native = targets.lanes(blocks.bits_of(main.written[0]))
    height = next((h for h in (_ROWS, 6, 7, 5, 4, 3, 2) if rows % h == 0), 1)
    width = next((w for w in (2 * native, native) if columns % w == 0), None)
    if width is None or height < 2:
        return None
    _pack(sch, main, roles.operand, roles.column, width)
    if not _steps_along(main, 1 - roles.operand):
        main = next(b for b in blocks.blocks_of(sch) if b.reduction)
        _pack(sch, main, 1 - roles.operand, roles.row, height)
    main = next(b for b in blocks.blocks_of(sch) if b.reduction)
    depth = blocks.volume(tuple(e for e, kind in zip(main.extents, main.kinds, strict=True) if kind == "R")) or 1
    panels = rows // height
    most = max(_BLOCK_BYTES * 8 // (blocks.bits_of(main.written[0]) * depth * height), 1)
    block = next(n for n in range(min(panels, most), 0, -1) if panels % n == 0)
    _tile(sch, main, roles, (block, height, width), work)
    sch = unchecked(sch)
    around = {b.name for b in found if b.spatial}
    for b in blocks.blocks_of(sch):
        if b.name in around:
            injective(sch, b)
    return sch


def roles_of(b: Block) -> Contraction | None:
    """How to tile `x[row, k] * y[k, column]`, summed; None if the block is no sum of products of two operands."""
    loads = blocks.loads_of(b)
    if len(loads) != 2 or len(b.node.reads) != 2 or len(b.node.writes) != 1 or not b.node.writes[0].region:
        return None
    spatial = [i for i, kind in enumerate(b.kinds) if kind == "S" and b.extents[i] != 1]
    variables = [v.var for v in b.node.iter_vars]
    moves = [{i for i in spatial if any(blocks.uses(e, variables[i]) for e in load.indices)} for load in loads]
    result = b.node.writes[0].region[-1].min
    column = next((i for i in spatial if variables[i].same_as(result)), None)
    if column is None:
        return None
    for operand in (1, 0):
        own, other = moves[operand], moves[1 - operand]
        rows = [i for i in spatial if i in other - own]
        if column in own - other and rows:
            read = next((k for k, r in enumerate(b.node.reads) if r.source.same_as(loads[operand].source)), None)
            return None if read is None else Contraction(rows[-1], column, read)
    return None


def _pack(sch: Any, b: Block, operand: int, position: int, width: int) -> None:
    """Copy an operand so that what a tile takes of it at each step of the sum is contiguous."""
    copy = sch.reindex(b.rv, ("read", operand))
    moved = [i for i in range(len(b.kinds)) if _moves(b, operand, i)]
    tiled = moved.index(position)

    def panels(*indices: Any) -> list[Any]:
        rest = [v for i, v in enumerate(indices) if i != tiled]
        return [indices[tiled] // width, *rest, indices[tiled] % width]

    dtype = dtype_of(b.node.iter_vars[0].var)
    layout = tvm.IndexMap.from_func(panels, ndim=len(moved), index_dtype=dtype)
    sch.transform_layout(b.rv, ("read", operand), layout)
    loops = sch.get_loops(copy)
    outer, inner = sch.split(loops[tiled], factors=[None, width])
    rest = [loop for i, loop in enumerate(loops) if i != tiled]
    sch.reorder(outer, *rest, inner)


def _moves(b: Block, operand: int, position: int) -> bool:
    return any(blocks.uses(e, b.node.iter_vars[position].var) for load in _loads(b, operand) for e in load.indices)


def _steps_along(b: Block, operand: int) -> bool:
    """Whether steps of the sum are neighbours in memory."""
    return all(blocks.uses(load.indices[-1], b.node.iter_vars[-1].var) for load in _loads(b, operand))


def _loads(b: Block, operand: int) -> list[Any]:
    source = b.node.reads[operand].source
    return [load for load in blocks.loads_of(b) if load.source.same_as(source)]


def _tile(sch: Any, b: Block, roles: Contraction, sizes: tuple[int, int, int], work: int) -> None:
    """Loop over blocks of `sizes[0]` tiles, panels of columns, tiles, the sum, and the rows and columns of a tile."""
    loops = blocks.loops_of(sch, b)
    row = next(loop.rv for loop in loops if roles.row in loop.positions)
    column = next(loop.rv for loop in loops if roles.column in loop.positions)
    outer = [loop.rv for loop in loops if loop.kind == "S" and not {roles.row, roles.column} & loop.positions]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    block, row, tile_row = sch.split(row, factors=[None, *sizes[:2]])
    column, tile_column = sch.split(column, factors=[None, sizes[2]])
    sch.reorder(*outer, block, column, row, *reduced, tile_row, tile_column)
    tile = sch.cache_write(b.rv, 0, "local")
    sch.reverse_compute_at(tile, row)
    sch.vectorize(tile_column)
    sch.unroll(tile_row)
    sch.vectorize(sch.get_loops(tile)[-1])
    if work >= PARALLEL_WORK:
        sch.parallel(sch.fuse(*outer, block, column))
    init = sch.decompose_reduction(b.rv, reduced[0])
    sch.unroll(sch.get_loops(init)[-2])
