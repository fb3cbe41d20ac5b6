"""CPU rule for spatial blocks: elementwise, broadcast, layout changes. Every CPU rule starts with its inlining.

Producers are inlined into their consumers, so that a chain of operators becomes one block per output. Its loops become:

- elementwise block: one loop over flat memory;
- transposed operand: square tiles, so that the cache lines of both sides are used up while they are cached;
- other blocks: the loop nest, whose innermost loop is vectorised.

Large static blocks run in parallel over the outer loops. LLVM vectorises the innermost loop by itself. Two kinds of
loops get explicit vectors: those that call transcendental functions, where several registers per iteration hide the
latency of polynomials, and short rows, which LLVM unrolls completely and leaves scalar.
"""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.inline import Producer, inline_blocks
from meta.backend.tvm.target import choose
from meta.backend.tvm.te import philox

PARTITION_HINT: Final = "pragma_loop_partition_hint"
"""Annotation of a loop that TVM splits into a part without bounds checks, which vectorises, and a tail."""


def schedule_elementwise(sch: tvm.Schedule) -> Any:
    """Rule: producers inlined, one loop nest per output. Applies if all remaining blocks are spatial."""
    sch = inline_producers(sch)
    if not all(b.is_spatial for b in blocks.list_blocks(sch)):
        return None
    sch = disable_checks(sch)
    for block in blocks.list_blocks(sch):
        schedule_spatial_block(sch, block)
    return sch


def inline_producers(sch: tvm.Schedule) -> Any:
    """A schedule with spatial blocks computed in their consumers, except where expensive work would be repeated."""
    return inline_blocks(sch, _should_inline)


def _should_inline(producer: Producer) -> bool:
    """Whether inlining computes each element of an expensive producer once, and of others a few times."""
    if not producer.is_repeated_little or not blocks.is_expensive(producer.block):
        return producer.is_repeated_little
    return producer.sites <= 1 and all(_has_extents(producer.block, c) for c in producer.consumers)


def _has_extents(producer: ComputeBlock, consumer: ComputeBlock) -> bool:
    """Whether a consumer has as many elements as its producer."""
    return len(producer.extents) == len(consumer.extents) and all(
        any(blocks.equal_extents(e, f) for f in consumer.extents) for e in producer.extents
    )


def disable_checks(sch: tvm.Schedule) -> Any:
    """A schedule of the same module without TVM's precondition checks.

    The checks reject decomposed blocks and bounds over symbolic extents that they cannot analyse. Callers apply only
    primitives that are correct by construction."""
    return tvm.Schedule(sch.mod, enable_check=False, error_render_level="fast")


def schedule_spatial_block(sch: tvm.Schedule, block: ComputeBlock, shared_loops: int = 0) -> None:
    """Schedule the loops of a spatial block below its first `shared_loops` loops, which it shares with other blocks."""
    loops = sch.get_loops(block.rv)[shared_loops:]
    if not loops:
        return
    extents = block.extents[shared_loops:] if len(block.extents) >= shared_loops + len(loops) else block.extents
    total = blocks.volume(extents)
    has_random_bits = blocks.has_random_bits(block)
    sharing = philox.elements_of_block(block.node.body) if has_random_bits else 1
    # A loop over flat memory would compute positions by divisions: the lower triangle of 1024x1024 took twice as long.
    is_flat = (
        shared_loops == 0
        and blocks.is_elementwise(block, _without_keys(block) if sharing > 1 else None)
        and (has_random_bits or len(loops) == 1 or not blocks.computes_of_positions(block))
    )
    if is_flat:
        loops = [sch.fuse(*loops)] if len(loops) > 1 else list(loops)
    transposed_axis = None if is_flat or shared_loops else find_transposed_axis(block)
    if transposed_axis is not None and not any(
        _has_wide_tail(block, extents[axis], limits.TRANSPOSE_TILE) or _is_below(extents[axis], limits.TRANSPOSE_TILE)
        for axis in (transposed_axis, -1)
    ):
        _tile_transpose(sch, loops, transposed_axis, is_parallel_work(block, total))
        return
    periods = {} if is_flat or shared_loops else _periods(block)
    if periods:
        nests = [sch.split(x, factors=[None, periods[i]]) if i in periods else [x] for i, x in enumerate(loops)]
        if is_parallel_work(block, total):
            sch.parallel(nests[0][0])
        return
    if is_flat and sharing > 1 and _has_whole_chunks(total, philox.LANES * sharing):
        chunk, part, lane = sch.split(loops[-1], factors=[None, sharing, philox.LANES])
        sch.reorder(chunk, lane, part)
        sch.unroll(part)
        sch.annotate(chunk, PARTITION_HINT, 1)
        if is_parallel_work(block, total):
            sch.parallel(chunk)
        return
    inner_extent = total if is_flat else extents[-1]
    vector_lanes = choose_vector_lanes(block, inner_extent) if is_flat or is_contiguous(block) else None
    if vector_lanes is None and not is_flat and shared_loops == 0 and is_contiguous(block):
        vector_lanes = _choose_short_row_lanes(block, inner_extent)
    is_vectorised = vector_lanes is not None and not _has_wide_tail(block, inner_extent, vector_lanes)
    # LLVM vectorises the loop of random bits well: 64000 normal numbers took 98 us, and with explicit vectors, whose
    # 64-bit products take several registers, 140 to 300.
    if is_vectorised and not has_random_bits:
        outer, inner = sch.split(loops[-1], factors=[None, vector_lanes])
        sch.vectorize(inner)
        sch.annotate(outer, PARTITION_HINT, 1)
        loops = [*loops[:-1], outer]
    if shared_loops == 0 and is_parallel_work(block, total):
        # Annotated loops cannot be fused.
        is_annotated = is_vectorised and len(loops) > 1 and not has_random_bits
        outer = loops[:-1] if is_annotated or _keeps_row_loop(block, loops, is_flat) else loops
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])


def _periods(block: ComputeBlock) -> dict[int, int]:
    """The axes along which operands are repeated, such as x[j % 4] for j below 16, and the sizes of what is repeated.

    A loop of that size has plain indices. LLVM's vectoriser also needs it: for CPUs with AVX-512 its code for nests of
    repetitions, such as x[i % 3, j % 4, k % 5] for 18 x 16 x 10 elements, reads other elements, and out of bounds."""
    axes = {v.var: i for i, v in enumerate(block.node.iter_vars)}
    periods: dict[int, int] = {}

    def visit(remainder: Any) -> None:
        axis = axes.get(remainder.a) if isinstance(remainder.a, tvm.Var) else None
        extent = block.extents[axis] if axis is not None else None
        if axis is None or not isinstance(extent, int) or not isinstance(remainder.b, tvm.IntImm):
            return
        size = int(remainder.b)
        if 0 < size < extent and extent % size == 0:
            periods[axis] = size

    for load in blocks.list_loads(block):
        for index in load.indices:
            tvm.structural_walk(index, (tirx.FloorMod, visit))
    return periods


def _is_below(extent: tvm.Expr | int | None, least: int) -> bool:
    """Whether a static extent is smaller: tiles of windows of 3 x 3 would be empty for the most part."""
    return isinstance(extent, int) and extent < least


def _keeps_row_loop(block: ComputeBlock, loops: list[Any], is_flat: bool) -> bool:
    """Whether the innermost loop stays apart from the parallel loop.

    In a fused loop the indices of a block that is not flat are computed by divisions, element by element."""
    if is_flat or not len(loops) == len(block.extents) > 1:
        return False
    row_length, row_count = blocks.volume(block.extents[-1:]) or 0, blocks.volume(block.extents[:-1]) or 0
    keeps = row_length >= limits.LEAST_ROW_LENGTH and row_count >= limits.LEAST_ROW_COUNT
    return choose("row_loop", keeps, (True, False))


def find_transposed_axis(block: ComputeBlock) -> int | None:
    """The axis, other than the last, along which an operand is contiguous; None if no operand is transposed."""
    variables = [v.var for v in block.node.iter_vars]
    for load in blocks.list_loads(block):
        if not load.indices or not any(blocks.uses_variable(i, variables[-1]) for i in load.indices[:-1]):
            continue
        for axis, variable in enumerate(variables[:-1]):
            if load.indices[-1].same_as(variable):
                return axis
    return None


def _tile_transpose(sch: tvm.Schedule, loops: Any, transposed_axis: int, parallel: bool) -> None:
    """Loop over square tiles of the transposed and the last axis. LLVM leaves their strided loads scalar, and with them
    all that follows: with explicit vectors, tanh of a transpose of 500x500 takes 150 us instead of 1900."""
    others = [loop for i, loop in enumerate(loops[:-1]) if i != transposed_axis]
    tile_row, row = sch.split(loops[transposed_axis], factors=[None, limits.TRANSPOSE_TILE])
    tile_column, column = sch.split(loops[-1], factors=[None, limits.TRANSPOSE_TILE])
    sch.annotate(tile_row, PARTITION_HINT, 1)
    sch.annotate(tile_column, PARTITION_HINT, 1)
    sch.reorder(*others, tile_row, tile_column, row, column)
    sch.vectorize(column)
    if parallel:
        # Annotated loops cannot be fused.
        sch.parallel(sch.fuse(*others) if others else tile_row)


def is_parallel_work(block: ComputeBlock, total: int | None) -> bool:
    """Whether `total` elements of the block are enough work for several threads; symbolic totals are not."""
    return (
        total is not None
        and total * (limits.TRANSCENDENTAL_WORK if blocks.is_expensive(block) else 1) >= limits.PARALLEL_WORK
    )


def choose_vector_lanes(block: ComputeBlock, extent: tvm.Expr | int | None) -> int | None:
    """Vector lanes for a loop that calls transcendental functions, None for other loops.

    Of 4, 2 or 1 registers the most that divide the extent; one register with a tail for long or symbolic extents."""
    if not blocks.is_expensive(block):
        return None
    native = targets.lanes(block.element_bits)
    if not isinstance(extent, int):
        return native
    dividing = [lanes for lanes in (4 * native, 2 * native, native) if extent % lanes == 0 and extent >= lanes]
    if not dividing:
        return native if extent >= limits.LEAST_TAIL_VECTORS * native else None
    return choose("vector_lanes", dividing[0], dividing)


def _choose_short_row_lanes(block: ComputeBlock, extent: tvm.Expr | int | None) -> int | None:
    """Lanes, at most one register, for a row that LLVM would unroll; None for other extents.

    Without explicit vectors, bias_add of 64x64x28x28 took 16.2 ms on one thread, with them 1.6."""
    if not isinstance(extent, int) or not limits.LEAST_ROW_LENGTH <= extent < limits.UNROLLED_BY_LLVM:
        return None
    return min(targets.lanes(block.element_bits), 1 << (extent.bit_length() - 1))


def _has_whole_chunks(total: int | None, chunk: int) -> bool:
    """Whether most elements are in chunks that share blocks of random bits: the last one computes all of its blocks."""
    return total is not None and (total % chunk == 0 or total >= 8 * chunk)


def _without_keys(block: ComputeBlock) -> list[Any]:
    """The operands of a block, but for those that it reads at constant positions, as random keys."""
    loads = blocks.list_loads(block)
    return [load.source for load in loads if not all(isinstance(i, tvm.IntImm) for i in load.indices)]


def _has_wide_tail(block: ComputeBlock, extent: tvm.Expr | int | None, vector_lanes: int) -> bool:
    """Whether a static loop with 64-bit indices leaves a tail, whose bounds check TVM narrows on one side only."""
    return isinstance(extent, int) and extent % vector_lanes != 0 and block.index_dtype == "int64"


def is_contiguous(block: ComputeBlock) -> bool:
    """Whether each access either moves by one element along the last axis of the block or does not move along it."""
    last = block.node.iter_vars[-1].var
    store = block.node.body
    if not isinstance(store, tvm.BufferStore):
        return False
    accesses = [store.indices, *(load.indices for load in blocks.list_loads(block))]
    return all(
        not any(
            blocks.uses_variable(i, last)
            for i in (indices if not indices or not indices[-1].same_as(last) else indices[:-1])
        )
        for indices in accesses
    )
