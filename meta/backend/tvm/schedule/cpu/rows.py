"""CPU schedules of reductions, and of what works row by row: softmax, norms and their gradients."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block
from meta.backend.tvm.schedule.cpu.elementwise import (
    HINT,
    PARALLEL_WORK,
    injective,
    inline_producers,
    is_large,
    unchecked,
)

_COLUMN_TILE: Final = 4  # vector registers of accumulators when the reduced axis is not the contiguous one


def row_wise(sch: Any) -> Any:
    """Rule: one loop over rows, in it every pass over the row while it is in the first-level cache."""
    inline_producers(sch)
    found = blocks.blocks_of(sch)
    if not all(b.spatial or b.reduction for b in found) or all(b.spatial for b in found):
        return None
    shared = _shared_rows(found)
    if shared == 0:
        return None
    _schedule_passes(sch, found, shared)
    sch = unchecked(sch)
    found = blocks.blocks_of(sch)
    _initialise_first(sch, found)
    rows = [sch.get_loops(b.rv)[:shared] for b in found]
    if len(found) > 1:
        # `compute_at` would do the same, but loses the bound checks of split loops and so reads past the end of rows.
        sch.merge(*(loops[-1] for loops in rows))
    work = [blocks.volume(b.extents) for b in found]
    if all(w is not None for w in work) and sum(w or 0 for w in work) >= PARALLEL_WORK:
        outer = sch.get_loops(found[0].rv)[:shared]
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
    return sch


def separate(sch: Any) -> Any:
    """Rule: every block by itself."""
    inline_producers(sch)
    found = blocks.blocks_of(sch)
    if not all(b.spatial or b.reduction for b in found):
        return None
    _schedule_passes(sch, found, 0)
    sch = unchecked(sch)
    found = blocks.blocks_of(sch)
    for b in found:
        first = blocks.loops_of(sch, b)[:1]
        if b.reduction and first and first[0].kind == "S" and is_large(b, blocks.volume(b.extents)):
            sch.parallel(first[0].rv)
    _initialise_first(sch, found)
    return sch


def _schedule_passes(sch: Any, found: list[Block], shared: int) -> None:
    """Schedule what is below the `shared` row loops of each block."""
    partials = _split_sums(sch, found)
    for b in blocks.blocks_of(sch):
        if b.spatial:
            injective(sch, b, shared)
        elif b.name in partials:
            _lanes(sch, b, partials[b.name])
        elif not _along_rows(b) and b.kinds.count("S") > shared:
            _columns(sch, b, shared)


def _initialise_first(sch: Any, found: list[Block]) -> None:
    """Set results before the first element is looked at: faster, and right where there is no element.

    Late, because the blocks that this leaves count as incomplete and bar most other primitives."""
    for b in found:
        if b.reduction:
            sch.decompose_reduction(b.rv, next(loop.rv for loop in blocks.loops_of(sch, b) if loop.kind == "R"))


def _shared_rows(found: list[Block]) -> int:
    """How many leading spatial dimensions all blocks go through alike, so that they can share those loops.

    Alike: same extents, and whatever one block hands to another stays within the row.
    """
    shared = min(len(b.kinds) - len(b.kinds.lstrip("S")) - (b.reduction and not _along_rows(b)) for b in found)
    first = found[0].extents
    produced = [buffer for b in found for buffer in b.written]
    for i in range(shared):
        if not all(blocks.same_extent(b.extents[i], first[i]) and _stays_in_row(b, i, produced) for b in found):
            return i
    return shared


def _stays_in_row(b: Block, i: int, produced: list[Any]) -> bool:
    """Whether dimension `i` of everything that the blocks produce is accessed at the block's own variable `i`."""
    var = b.node.iter_vars[i].var
    regions = [*b.node.writes, *(r for r in b.node.reads if any(r.source.same_as(p) for p in produced))]
    return all(len(r.region) > i and r.region[i].min.same_as(var) for r in regions)


def _along_rows(b: Block) -> bool:
    """Whether the innermost reduced variable moves along the last dimension of what is read, by one."""
    last = b.node.iter_vars[-1].var
    moved = [load for load in blocks.loads_of(b) if any(blocks.uses(i, last) for i in load.indices)]
    return bool(moved) and all(
        load.indices[-1].same_as(last) and not any(blocks.uses(i, last) for i in load.indices[:-1]) for load in moved
    )


def _split_sums(sch: Any, found: list[Block]) -> dict[str, int]:
    """Give each reduction along rows one accumulator per vector lane, or several; by name of the block that fills them,
    over how many dimensions they are spread."""
    partials: dict[str, int] = {}
    sums = [b for b in found if b.reduction and _along_rows(b) and len(b.node.writes) == 1]
    for b in found if sums else ():
        # `rfactor` fails on a block beside the one that it splits which is in no loop: a result without axes.
        if not sch.get_loops(b.rv):
            sch.add_unit_loop(b.rv)
    for b in sums:
        native = targets.lanes(max(blocks.bits_of(buffer) for buffer in (*b.written, *b.read)))
        extent = b.extents[-1]
        if isinstance(extent, int) and extent < 2 * native:
            continue
        registers = 4 if isinstance(extent, int) and extent >= 32 * native and extent % (4 * native) < native else 1
        kept = len(b.kinds.rstrip("R"))
        *_, lane = sch.split(sch.get_loops(b.rv)[-1], factors=[None, *([registers] if registers > 1 else []), native])
        partial = sch.rfactor(lane, kept)
        partials[str(sch.get(partial).name_hint)] = 1
        if registers > 1:
            # Registers before lanes: every access is one whole vector, so that LLVM keeps the sums in registers.
            partials[str(sch.get(sch.rfactor(sch.get_loops(partial)[-2], kept)).name_hint)] = 2
    return partials


def _lanes(sch: Any, b: Block, spread: int) -> None:
    """Accumulators side by side, along the last `spread` dimensions of the result: their loops innermost, the last in
    vectors, with the tail of the row split off."""
    loops = blocks.loops_of(sch, b)
    accumulators = [r.min for r in b.node.writes[0].region][-spread:]
    positions = [next(i for i, v in enumerate(b.node.iter_vars) if v.var.same_as(a)) for a in accumulators]
    *registers, lane = (next(loop.rv for loop in loops if position in loop.positions) for position in positions)
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(*reduced, *registers, lane)
    for register in registers:
        sch.unroll(register)
    sch.vectorize(lane)
    sch.annotate(reduced[-1], HINT, 1)


def _columns(sch: Any, b: Block, shared: int) -> None:
    """The reduced axis is not the contiguous one: sum whole vectors, a tile of columns at a time."""
    loops = blocks.loops_of(sch, b)
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    position = len(b.kinds.rstrip("R")) - 1
    column = next(loop.rv for loop in loops[shared:] if position in loop.positions)
    extent = b.extents[position]
    native = targets.lanes(max(blocks.bits_of(buffer) for buffer in (*b.written, *b.read)))
    width = next(
        (w * native for w in (_COLUMN_TILE, 2, 1) if isinstance(extent, int) and extent % (w * native) == 0), None
    )
    if width is not None:
        _, column = sch.split(column, factors=[None, width])
    sch.reorder(*reduced, column)
    if width is not None:
        sch.vectorize(column)
