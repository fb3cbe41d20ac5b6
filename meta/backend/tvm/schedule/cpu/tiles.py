"""CPU rule for sums over register tiles (see meta.backend.tvm.te.tiles): products with a matrix, and convolutions with
channels last.

copies of operands
parallel over cache blocks of the result and panels of lanes
    loop over the tiles of a cache block
        loop over the terms of the sum: add scalars times two vectors to the tile, which stays in registers
        store the tile, after the elementwise operators that follow

A panel of an operand that only the sum of one panel of lanes reads may be copied where that begins; threads then share
the panels alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.cpu.elementwise import (
    disable_checks,
    find_transposed_axis,
    schedule_spatial_block,
)
from meta.backend.tvm.schedule.inline import Producer, inline_blocks
from meta.backend.tvm.target import choose, lanes
from meta.backend.tvm.te.tiles import BLOCK, BY_PANEL, BY_TILE, DOTS, KEPT, PARTS, STORED, TILE


def schedule_tiles(sch: tvm.Schedule) -> Any:
    """Rule: one annotated sum, stored copies before it, and elementwise operators after it."""
    sums = [b for b in blocks.list_blocks(sch) if TILE in b.node.annotations]
    if len(sums) != 1:
        return None
    name = sums[0].name
    inlined = _inline(sch, name)
    if inlined is None:
        return None
    sch = disable_checks(inlined)
    all_blocks = blocks.list_blocks(sch)
    total = next(b for b in all_blocks if b.name == name)
    kept = {b: int(b.node.annotations[KEPT]) for b in all_blocks if KEPT in b.node.annotations}
    after = [b for b in all_blocks if b.name != name and b not in kept]
    results = [b for b, when in kept.items() if when == BY_TILE] or after
    has_parts = bool(int(total.node.annotations[PARTS]))
    if not results or (len(results) > 1 and (has_parts or not _share_loops(total, results))):
        return None
    for copy in (b for b, when in kept.items() if when == STORED):
        _schedule_copy(sch, copy)
    for block in after if results is not after else ():
        schedule_spatial_block(sch, block)
    _tile(sch, total, [b for b, when in kept.items() if when == BY_PANEL], [b.rv for b in results])
    return sch


def _share_loops(total: ComputeBlock, results: Sequence[ComputeBlock]) -> bool:
    """Whether blocks compute one element each of results of one shape, so that a tile may compute its part of all. The
    sums have more elements, where tiles do not divide the results.

    Each block reads an element that the tile has computed before: TVM would put the whole of another block into the
    tile."""
    (sums,) = total.written_buffers
    computed = list(total.written_buffers)
    for block in results:
        if not any(load.source.same_as(c) for load in blocks.list_loads(block) for c in computed):
            return False
        computed += block.written_buffers

    def is_own_element(block: ComputeBlock) -> bool:
        loads = blocks.list_loads(block)
        axes = [v.var for v in block.node.iter_vars]
        others = [load.source for load in loads if not load.source.same_as(sums)]
        own = (load for load in loads if load.source.same_as(sums))
        return blocks.is_elementwise(block, others) and all(
            index.same_as(axis) for load in own for index, axis in zip(load.indices, axes, strict=True)
        )

    return all(is_own_element(b) and b.extents == results[0].extents for b in results)


def _inline(sch: tvm.Schedule, name: str) -> tvm.Schedule | None:
    """A schedule with the elementwise operators after the sum computed in the last of them, None if one is left."""

    def rule(producer: Producer) -> bool:
        block = producer.block
        return block.name != name and KEPT not in block.node.annotations and producer.is_repeated_little

    sch = inline_blocks(sch, rule)
    params = sch.mod["main"].params
    for block in blocks.list_blocks(sch):
        is_result = any(w.same_as(p) for w in block.written_buffers for p in params)
        if block.name != name and KEPT not in block.node.annotations and not is_result:
            return None
    return sch


def _schedule_copy(sch: tvm.Schedule, copy: ComputeBlock, shared_loops: int = 0) -> None:
    """Schedule a stored copy below the loops that it shares with the sum.

    Where its rows of lanes come from rows of the source, the loops follow the source: rows that are pages apart, as the
    panels of a kernel turned around are, would be read without prefetches. Where they come from columns, blocks of rows
    and columns are exchanged in registers."""
    order = _source_order(copy)
    total = blocks.volume(copy.extents)
    parallel = total is not None and total >= limits.PARALLEL_COPY and not shared_loops
    if total is not None and _exchange_axes(sch, copy, shared_loops, parallel):
        return
    if order is None or total is None:
        schedule_spatial_block(sch, copy, shared_loops)
        return
    loops = sch.get_loops(copy.rv)
    outer = [loops[i] for i in order if i >= shared_loops]
    sch.reorder(*outer, loops[-1])
    sch.vectorize(loops[-1])
    if parallel:
        sch.parallel(outer[0])


def _exchange_axes(sch: tvm.Schedule, copy: ComputeBlock, shared_loops: int, parallel: bool) -> bool:
    """Schedule a copy whose source is contiguous along another axis than the last: vectors along that one, of several
    lanes at once. False if there is no such axis, bounds are checked, or blocks do not divide the extents."""
    axis = find_transposed_axis(copy)
    if axis is None or not isinstance(copy.node.body.value, tvm.TensorLoad):
        return False
    lanes = limits.EXCHANGED_LENGTHS[-1]
    length = next((n for n in limits.EXCHANGED_LENGTHS if copy.extents[axis] % n == 0), None)
    if length is None or copy.extents[-1] % lanes:
        return False
    loops = sch.get_loops(copy.rv)
    along, vector = sch.split(loops[axis], factors=[None, length])
    across, lane = sch.split(loops[-1], factors=[None, lanes])
    others = [loop for i, loop in enumerate(loops[:-1]) if i != axis and i >= shared_loops]
    sch.reorder(*others, along, across, lane, vector)
    sch.unroll(lane)
    sch.vectorize(vector)
    if parallel:
        sch.parallel(sch.fuse(*others) if others else along)
    return True


def _source_order(copy: ComputeBlock) -> list[int] | None:
    """The axes before the last one of a copy, in the order in which its source has them; None if the last axis is not
    contiguous there, or the copy has the same order."""
    variables = [v.var for v in copy.node.iter_vars]
    loads = blocks.list_loads(copy)
    if len(loads) != 1 or any(blocks.uses_variable(i, variables[-1]) for i in loads[0].indices[:-1]):
        return None
    order = [a for i in loads[0].indices for a, v in enumerate(variables[:-1]) if blocks.uses_variable(i, v)]
    return order if sorted(order) == list(range(len(order))) != order and len(order) == len(variables) - 1 else None


def _vectorise_result(sch: tvm.Schedule, result: Any, width: int) -> None:
    """Store a tile in vectors: of lanes that are all in the result or all behind its end, where tiles do not divide it,
    so that one check is enough for each."""
    columns = blocks.get_block(sch, result).extents[-1]
    lanes = gcd(columns, width) if isinstance(columns, int) else width
    lane = sch.get_loops(result)[-1]
    if limits.LEAST_STORED_LANES <= lanes < width:
        part, lane = sch.split(lane, factors=[None, lanes])
        sch.unroll(part)
    sch.vectorize(lane)


def _tile(sch: tvm.Schedule, total: ComputeBlock, panels: Sequence[ComputeBlock], results: Sequence[Any]) -> None:
    """Schedule the sum, with the copies of the panels that it reads and the results of its tiles."""
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
    if int(total.node.annotations[DOTS]):
        inner[-1:] = sch.split(inner[-1], factors=[None, lanes(32)])
    # Threads share the panels and cache blocks, the panels alone if each packs its own, or the panels and rows of tiles
    # of a sum of parts.
    if panels:
        outer, middle = [panel], [*cached, *middle]
    else:
        order = [*cached, panel] if choose("blocks_before_panels", True, (True, False)) else [panel, *cached]
        outer = [panel, middle.pop(1)] if has_parts else order
    sch.reorder(*outer, *middle, *reduced, *inner)
    for copy in panels:
        sch.compute_at(copy.rv, panel)
        _schedule_copy(sch, copy, shared_loops=1)
    sch.set_scope(total.rv, 0, "local")
    sch.vectorize(inner[-1])
    for loop in inner[:-1]:
        sch.unroll(loop)
    sch.reverse_compute_at(results[0], middle[-1])
    for result in results[1:]:
        sch.reverse_compute_at(result, sch.get_loops(results[0])[-1])
    if find_transposed_axis(blocks.get_block(sch, results[0])) is None:
        _vectorise_result(sch, results[0], tile[-1])
    if has_parts:
        sch.vectorize(sch.get_loops(sch.decompose_reduction(results[0], middle[0]))[-1])
    work = blocks.volume(total.extents)
    if work is not None and work >= limits.PARALLEL_WORK:
        sch.parallel(sch.fuse(*outer))
    first = sch.get_loops(sch.decompose_reduction(total.rv, reduced[0]))[-len(inner) :]
    sch.vectorize(first[-1])
    for loop in first[:-1]:
        sch.unroll(loop)
