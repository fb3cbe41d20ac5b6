"""CUDA schedule of reductions over outer axes: neighbouring threads read neighbouring columns, and the rows are cut
into parts that are reduced at the same time."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block

_COLUMNS: Final = 32
"""Columns of a block of threads: a warp reads 128 bytes of float32 at once."""
_PARTS_TOGETHER: Final = 8
"""Parts of a block of threads."""
_SERIAL: Final = 4
"""Elements, at least, that a thread adds; loads that it waits for at the same time."""
BUSY: Final = 1 << 18
"""Threads that keep a GPU busy."""
_PARTS_UNKNOWN: Final = 512
"""Parts, at most, of a sum of unknown length."""
_PARTS: Final = 1024
_PARTS_OF_ONE: Final = 128
"""Parts whose results one thread adds; more are shared."""
_SHARING: Final = 32
"""Threads that add them then."""


def over_columns(b: Block) -> bool:
    """Whether it reduces over outer axes: what moves with a reduced axis is read at the innermost position of the
    result, by ones, or at the same place for all of them."""
    if not b.reduction or "S" not in b.kinds:
        return False
    inner = b.kinds.rindex("S")
    if b.extents[inner] == 1:
        return False
    column = b.node.iter_vars[inner].var
    reduced = [v.var for v, kind in zip(b.node.iter_vars, b.kinds, strict=True) if kind == "R"]
    moved = [load for load in blocks.loads_of(b) if any(blocks.uses(i, r) for i in load.indices for r in reduced)]
    beside = [load for load in moved if load.indices[-1].same_as(column)]
    apart = [load for load in moved if not any(blocks.uses(i, column) for i in load.indices)]
    return bool(beside) and len(beside) + len(apart) == len(moved)


def share_columns(sch: Any, b: Block) -> Block | None:
    """Have a reduction over columns done in parts by many threads. Returned is the block that reduces the results of
    the parts, to be scheduled: `b` itself where it is too short to be cut. None where nothing is left to do.

    Nothing is reduced across threads here: in programs of unknown sizes TVM does not see such reductions for what they
    are, and lets the threads race."""
    parts = _parts(b)
    if parts < _PARTS_TOGETHER or len(b.node.writes) != 1:
        return b
    loops = blocks.loops_of(sch, b)
    spatial = [loop.rv for loop in loops if loop.kind == "S"]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(*spatial, *reduced)
    part, _ = sch.split(blocks.fused(sch, reduced), factors=[parts, None])
    try:
        partial = sch.rfactor(part, 0)
    except tvm.ScheduleError:  # what is no sum, maximum or the like
        return blocks.block(sch, b.rv)
    _reduce_parts(sch, blocks.block(sch, partial))
    if parts <= _PARTS_OF_ONE:
        return blocks.block(sch, b.rv)
    loops = blocks.loops_of(sch, blocks.block(sch, b.rv))
    spatial = [loop.rv for loop in loops if loop.kind == "S"]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    wide, column = sch.split(blocks.fused(sch, spatial), factors=[None, _COLUMNS])
    _, row = sch.split(blocks.fused(sch, reduced), factors=[None, _SHARING])
    sch.reorder(wide, column, row)
    sch.bind(wide, "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    sch.bind(row, "threadIdx.y")
    return None


def _parts(b: Block) -> int:
    """Into how many parts a sum is cut."""
    rows = blocks.volume(tuple(e for e, kind in zip(b.extents, b.kinds, strict=True) if kind == "R"))
    columns = blocks.volume(tuple(e for e, kind in zip(b.extents, b.kinds, strict=True) if kind == "S"))
    if rows is None:
        longest = max(blocks.at_least(e) for e, kind in zip(b.extents, b.kinds, strict=True) if kind == "R")
        return min(longest // _SERIAL, _PARTS_UNKNOWN)
    wanted = _PARTS_UNKNOWN if columns is None else BUSY // columns
    return min(_power(wanted), _power(rows // _SERIAL), _PARTS)


def _power(number: int) -> int:
    """The largest power of two up to a number, 0 for 0."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0


def _reduce_parts(sch: Any, b: Block) -> None:
    """A thread for each part of each column, which adds in a register."""
    written = sch.cache_write(b.rv, 0, "local")
    loops = blocks.loops_of(sch, blocks.block(sch, b.rv))
    part = next(loop.rv for loop in loops if 0 in loop.positions)
    spatial = [loop.rv for loop in loops if loop.kind == "S" and 0 not in loop.positions]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(part, *spatial, *reduced)
    high, low = sch.split(part, factors=[None, _PARTS_TOGETHER])
    wide, column = sch.split(blocks.fused(sch, spatial), factors=[None, _COLUMNS])
    serial, several = sch.split(blocks.fused(sch, reduced), factors=[None, _SERIAL])
    sch.reorder(high, wide, low, column, serial, several)
    sch.unroll(several)
    for loop, name in ((high, "blockIdx.y"), (wide, "blockIdx.x"), (low, "threadIdx.y"), (column, "threadIdx.x")):
        sch.bind(loop, name)
    sch.reverse_compute_at(written, column)
    sch.decompose_reduction(b.rv, serial)
