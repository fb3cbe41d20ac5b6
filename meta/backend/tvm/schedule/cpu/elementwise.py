"""CPU schedules of blocks that compute each element on its own, and what to inline into what."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block

PARALLEL_WORK: Final = 1 << 19
"""Additions' worth of work below which waking another thread costs more than it saves."""

_CALL_WORK: Final = 8  # a transcendental function, in additions
HINT: Final = "pragma_loop_partition_hint"
"""Annotation that has TVM split a loop into a part without bounds checks, which vectorises, and a tail."""


def elementwise(sch: Any) -> Any:
    """Rule: everything inlined, one loop over each output."""
    inline_producers(sch)
    if not all(b.spatial for b in blocks.blocks_of(sch)):
        return None
    sch = unchecked(sch)
    for b in blocks.blocks_of(sch):
        injective(sch, b)
    return sch


def inline_producers(sch: Any) -> None:
    """Inline spatial blocks into their consumers unless that repeats expensive work."""
    outputs = sch.mod["main"].params
    for b in blocks.blocks_of(sch):
        if not b.spatial or any(w.same_as(o) for w in b.written for o in outputs):
            continue
        consumers = [blocks.block(sch, rv) for rv in sch.get_consumers(b.rv)]
        if consumers and all(_worth_inlining(b, c, len(consumers)) for c in consumers):
            try:
                sch.compute_inline(b.rv)
            except tvm.ScheduleError:
                continue  # for instance an index map that cannot be inverted; the block keeps its buffer


def _worth_inlining(producer: Block, consumer: Block, consumers: int) -> bool:
    if not blocks.expensive(producer):
        return True
    same_volume = len(producer.extents) == len(consumer.extents) and all(
        any(blocks.same_extent(e, f) for f in consumer.extents) for e in producer.extents
    )
    return consumers == 1 and same_volume


def injective(sch: Any, b: Block, skip: int = 0) -> None:
    """Schedule the loops of a spatial block, the first `skip` of which are shared with others and stay.

    One loop if every access is at the block's own position; else the innermost dimension alone. LLVM's own vectoriser
    handles that loop well unless it is short; vectors of several registers hide the latency of polynomials better.
    """
    loops = sch.get_loops(b.rv)[skip:]
    if not loops:
        return
    extents = b.extents[skip:] if len(b.extents) >= skip + len(loops) else b.extents
    total = blocks.volume(extents)
    flat = skip == 0 and blocks.elementwise(b)
    if flat:
        loops = [sch.fuse(*loops)] if len(loops) > 1 else list(loops)
    crossing = None if flat or skip else _crossing(b)
    if crossing is not None:
        _tile(sch, loops, crossing, is_large(b, total))
        return
    inner_extent = total if flat else extents[-1]
    width = vector_width(b, inner_extent) if flat or contiguous(b) else None
    if width is None and not flat and skip == 0 and contiguous(b):
        width = _short_row_width(b, inner_extent)
    if width is not None:
        outer, inner = sch.split(loops[-1], factors=[None, width])
        sch.vectorize(inner)
        sch.annotate(outer, HINT, 1)
        loops = [*loops[:-1], outer]
    if skip == 0 and is_large(b, total):
        outer = loops[:-1] if _is_row(b, loops, flat) else loops
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])


def _is_row(b: Block, loops: list[Any], flat: bool) -> bool:
    """Whether the innermost loop is better left alone: fused with others it would find its indices by divisions.

    It is long enough for vectors, and there are enough others for the threads."""
    if flat or not len(loops) == len(b.extents) > 1:
        return False
    return (blocks.volume(b.extents[-1:]) or 0) >= _ROW and (blocks.volume(b.extents[:-1]) or 0) >= _ROWS


def _crossing(b: Block) -> int | None:
    """Position of the variable along which a transposed operand is contiguous; the result is so along the last one."""
    variables = [v.var for v in b.node.iter_vars]
    for load in blocks.loads_of(b):
        if not load.indices or not any(blocks.uses(i, variables[-1]) for i in load.indices[:-1]):
            continue
        for i, variable in enumerate(variables[:-1]):
            if load.indices[-1].same_as(variable):
                return i
    return None


def _tile(sch: Any, loops: Any, crossing: int, parallel: bool) -> None:
    """Square tiles, so that each cache line that is touched is used up while it is there."""
    others = [loop for i, loop in enumerate(loops[:-1]) if i != crossing]
    row, row_in_tile = sch.split(loops[crossing], factors=[None, _TILE])
    column, column_in_tile = sch.split(loops[-1], factors=[None, _TILE])
    sch.annotate(row, HINT, 1)
    sch.annotate(column, HINT, 1)
    sch.reorder(*others, row, column, row_in_tile, column_in_tile)
    if parallel:
        sch.parallel(sch.fuse(*others, row) if others else row)


_ROW: Final = 8
_ROWS: Final = 256
_UNROLLED: Final = 56
"""Iterations below which LLVM unrolls a loop completely, and then does not vectorise it."""
_TILE: Final = 16  # one cache line of float32


def unchecked(sch: Any) -> Any:
    """The schedule of the same module without TVM's preconditions, for steps that are right by construction.

    Those refuse blocks that were decomposed, and bound checks over symbolic extents that they cannot analyse.
    """
    return tvm.Schedule(sch.mod, enable_check=False, error_render_level="fast")


def is_large(b: Block, total: int | None) -> bool:
    """Whether `total` elements of the block are worth several threads."""
    return total is not None and total * (_CALL_WORK if blocks.expensive(b) else 1) >= PARALLEL_WORK


def vector_width(b: Block, extent: Any) -> int | None:
    """Lanes for a loop of that extent: up to four registers' worth, with little left over; None for LLVM's choice."""
    if not blocks.expensive(b):
        return None
    native = targets.lanes(max(blocks.bits_of(buffer) for buffer in (*b.written, *b.read)))
    if not isinstance(extent, int):
        return native
    dividing = (w for w in (4 * native, 2 * native, native) if extent % w == 0 and extent >= w)
    return next(dividing, native if extent >= 4 * native else None)


def _short_row_width(b: Block, extent: Any) -> int | None:
    """Lanes, at most one register's worth, for a row that LLVM would unroll instead of vectorising; None for others."""
    if not isinstance(extent, int) or not _ROW <= extent < _UNROLLED:
        return None
    native = targets.lanes(max(blocks.bits_of(buffer) for buffer in (*b.written, *b.read)))
    return min(native, 1 << (extent.bit_length() - 1))


def contiguous(b: Block) -> bool:
    """Whether the last variable moves along the last dimension of each access, by one, or does not move it at all."""
    last = b.node.iter_vars[-1].var
    store = b.node.body
    if not isinstance(store, tvm.BufferStore):
        return False
    accesses = [store.indices, *(load.indices for load in blocks.loads_of(b))]
    return all(
        not any(
            blocks.uses(i, last) for i in (indices if not indices or not indices[-1].same_as(last) else indices[:-1])
        )
        for indices in accesses
    )
