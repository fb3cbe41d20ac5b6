"""CPU rule for sums over register tiles (see meta.backend.tvm.te.tiles): convolutions with channels last.

parallel over cache blocks of the result and panels of lanes
    loop over the tiles of a cache block
        loop over the terms of the sum: add scalars times two vectors to the tile, which stays in registers
        store the tile, after the elementwise operators that follow
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.elementwise import PARALLEL_WORK, disable_checks, schedule_spatial_block
from meta.backend.tvm.te.tiles import BLOCK, KEPT, PARTS, TILE


def schedule_tiles(sch: Any) -> Any:
    """Rule: one annotated sum, stored copies before it, and elementwise operators after it."""
    sums = [b for b in blocks.list_blocks(sch) if TILE in b.node.annotations]
    if len(sums) != 1:
        return None
    name = sums[0].name
    _inline(sch, name)
    sch = disable_checks(sch)
    all_blocks = blocks.list_blocks(sch)
    total = next(b for b in all_blocks if b.name == name)
    copies = [b for b in all_blocks if KEPT in b.node.annotations]
    consumers = sch.get_consumers(total.rv)
    if len(consumers) != 1 or len(all_blocks) != 2 + len(copies):
        return None
    for copy in copies:
        _schedule_copy(sch, copy)
    _tile(sch, total, consumers[0])
    return sch


def _inline(sch: Any, name: str) -> None:
    """Compute the elementwise operators after the sum in the last of them."""
    params = sch.mod["main"].params
    for block in blocks.list_blocks(sch):
        is_result = any(w.same_as(p) for w in block.written_buffers for p in params)
        if block.name != name and KEPT not in block.node.annotations and not is_result:
            sch.compute_inline(block.rv)


def _schedule_copy(sch: Any, copy: ComputeBlock) -> None:
    """Schedule a stored copy. Where its rows of lanes come from rows of the source, the loops follow the source: rows
    that are pages apart, as the panels of a kernel turned around are, would be read without prefetches."""
    order = _source_order(copy)
    total = blocks.volume(copy.extents)
    if order is None or total is None:
        schedule_spatial_block(sch, copy)
        return
    loops = sch.get_loops(copy.rv)
    outer = [loops[i] for i in order]
    sch.reorder(*outer, loops[-1])
    sch.vectorize(loops[-1])
    if total >= PARALLEL_WORK:
        sch.parallel(outer[0])


def _source_order(copy: ComputeBlock) -> list[int] | None:
    """The axes before the last one of a copy, in the order in which its source has them; None if the last axis is not
    contiguous there, or the order is that of the copy."""
    variables = [v.var for v in copy.node.iter_vars]
    loads = blocks.list_loads(copy)
    if len(loads) != 1 or any(blocks.uses_variable(i, variables[-1]) for i in loads[0].indices[:-1]):
        return None
    order = [a for i in loads[0].indices for a, v in enumerate(variables[:-1]) if blocks.uses_variable(i, v)]
    return order if sorted(order) == list(range(len(order))) != order and len(order) == len(variables) - 1 else None


def _tile(sch: Any, total: ComputeBlock, consumer: Any) -> None:
    tile, sizes = ([int(n) for n in total.node.annotations[name]] for name in (TILE, BLOCK))
    has_parts = bool(int(total.node.annotations[PARTS]))
    loops = sch.get_loops(total.rv)
    reduced = loops[len(tile) :]
    cached, middle, inner = list[Any](), list[Any](), list[Any]()
    for loop, size, within in zip(loops, sizes, tile, strict=False):
        rest = loop
        if size:
            outer, rest = sch.split(rest, factors=[None, size])
            cached.append(outer)
        rest, within_tile = sch.split(rest, factors=[None, within])
        middle.append(rest)
        inner.append(within_tile)
    *middle, panel = middle
    # Threads share the panels and cache blocks, or the panels and rows of tiles of a sum of parts.
    outer = [panel, middle.pop(1)] if has_parts else [*cached, panel]
    sch.reorder(*outer, *middle, *reduced, *inner)
    sch.set_scope(total.rv, 0, "local")
    sch.reverse_compute_at(consumer, middle[-1])
    sch.vectorize(inner[-1])
    for loop in inner[:-1]:
        sch.unroll(loop)
    sch.vectorize(sch.get_loops(consumer)[-1])
    if has_parts:
        sch.vectorize(sch.get_loops(sch.decompose_reduction(consumer, middle[0]))[-1])
    work = blocks.volume(total.extents)
    if work is not None and work >= PARALLEL_WORK:
        sch.parallel(sch.fuse(*outer))
    first = sch.get_loops(sch.decompose_reduction(total.rv, reduced[0]))[-len(inner) :]
    sch.vectorize(first[-1])
    for loop in first[:-1]:
        sch.unroll(loop)
