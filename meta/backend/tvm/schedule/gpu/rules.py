"""CUDA schedules: TVM's dlight rules by pattern, rules of our own, and one that fits everything.

A rule that refuses a function, trips over it, or leaves memory to be read on the host, is passed over for the next.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block
from meta.backend.tvm.schedule.cpu.rows import _along_rows, _shared_rows
from meta.backend.tvm.schedule.gpu.checks import on_device, without_races
from meta.backend.tvm.schedule.gpu.columns import BUSY, over_columns, share_columns
from meta.backend.tvm.schedule.gpu.launch import launched

THREADS: Final = 256
"""Threads of a block that each compute elements of their own."""
_ROW_THREADS: Final = 256
"""Threads of a block that reduce a row together."""
_MOST_THREADS: Final = 1024
_WARP: Final = 32
_TILED: Final = 1 << 16
"""Elements from which a product is computed in tiles (of 64 x 64)."""
_FEW: Final = 8
"""Rows below which a product is one of vectors."""
_LONG: Final = 4096
"""Multiplications an element from which tiles pay whatever the size (a convolution's gradient by its kernel)."""
_PARTS: Final = 512
"""Blocks that a reduction to one element is spread over."""
_VECTOR_BITS: Final = 128
"""The widest load of one thread."""
_MANY: Final = 8
"""Elements that a thread computes one after the other, where there are enough: launching a thread costs as much as the
rest of it."""

Rule = Callable[[Any, Any], Any]
"""(function, target) -> the scheduled function, or None where the rule does not apply."""


def schedule_gpu(func: Any, pattern: str, target: Any) -> Any:
    """The function with its loops bound to blocks and threads."""
    func = launched(func)
    if str(func.body.block.name_hint) != "root":
        return func  # one hand-written block
    rules = (*_RULES.get(pattern, ()), _columns, _row_wise, _elementwise)
    with target:
        for rule in rules if not _is_empty(func) else ():
            found = _attempt(rule, func, target)
            if found is not None:
                return _exact_constants(found)
        separated = _separate(func)
        return _exact_constants(separated if without_races(separated) else _separate(func, sharing=False))


def _is_empty(func: Any) -> bool:
    """Whether a block has nothing to do. Rules would give it memory of no size, which TVM does not compile."""
    return any(blocks.volume(b.extents) == 0 for b in blocks.blocks_of(tvm.Schedule(func)))


def _exact_constants(func: Any) -> Any:
    """TVM prints float64 numbers with 15 digits after the point; others are passed as their bits."""

    def exact(number: Any) -> Any:
        value = float(number.value)
        if str(number.ty.dtype) != "float64" or not math.isfinite(value) or float(f"{value:.15f}") == value:
            return number
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return tvm.tirx.call_pure_extern("float64", "__longlong_as_double", tvm.IntImm("int64", bits))

    return tvm.structural_map(func, (tvm.FloatImm, exact))


def _attempt(rule: Rule, func: Any, target: Any) -> Any:
    try:
        found = rule(func, target)
    except (tvm.ScheduleError, tvm.TVMError, ValueError, TypeError, AssertionError, IndexError, AttributeError):
        # What TVM's primitives refuse, its internal checks, and what dlight's rules trip over in programs that they do
        # not foresee.
        return None
    return found if found is not None and on_device(found) and without_races(found) else None


# --- rules -----------------------------------------------------------------------------------------------------------


def _dlight(name: str) -> Rule:
    def apply(func: Any, target: Any) -> Any:
        made = getattr(tvm.dlight.gpu, name)().apply(func, target, False)
        return None if made is None else made.mod["main"]

    return apply


def _small_product(func: Any, target: Any) -> Any:
    """A block of threads for each row of a product that tiles would leave to a few blocks."""
    products = [b for b in blocks.blocks_of(tvm.Schedule(func)) if b.reduction]
    if len(products) != 1:
        return None
    kept = products[0].kinds.count("S")
    *rows, columns = products[0].extents[:kept] or (1,)
    count, length = blocks.volume(tuple(rows)), blocks.volume(products[0].extents[kept:])
    if not isinstance(columns, int) or count is None or length is None:
        return None
    return _row_wise(func, target) if count >= _FEW and count * columns < _TILED and length <= _LONG else None


def _matmul(func: Any, target: Any) -> Any:
    """Tiles in shared memory. Float32 alone: for halves and bytes dlight's rule wants tensor cores, and crashes the
    process on programs that do not fit them."""
    if any(str(buffer.dtype) not in ("float32", "float64") for buffer in blocks.buffers_of(func)):
        return None
    return _dlight("Matmul")(func, target)


def _elementwise(func: Any, target: Any) -> Any:
    """Everything inlined, a thread an element (or a short vector of them)."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    found = blocks.blocks_of(sch)
    if not found or not all(b.spatial and sch.get_loops(b.rv) for b in found):
        return None
    for b in found:
        _bind_elements(sch, b, _vector_lanes(b))
    made = sch.mod["main"]
    return _read_at_once(made) if all(map(blocks.elementwise, found)) else made


def _read_at_once(func: Any) -> Any:
    """Have both sides of each choice computed before it. As it is, TVM's code reads the chosen one when it knows the
    condition, which it has to wait for. Only for elements at their own position, which always exist."""

    def ahead(choice: Any) -> Any:
        sides = (choice.true_value, choice.false_value)
        names = [tvm.tirx.Var("side", str(side.ty.dtype)) for side in sides]
        made = tvm.tirx.Select(choice.condition, *names)
        for name, side in zip(names, sides, strict=True):
            made = tvm.tirx.Let(name, side, made)
        return made

    return tvm.structural_map(func, (tvm.tirx.Select, ahead))


def _vector_lanes(b: Block) -> int:
    """Elements of a thread that are loaded and stored at once; 1 where that is not known to be possible."""
    total = blocks.volume(b.extents)
    bits = max(blocks.bits_of(buffer) for buffer in (*b.written, *b.read))
    lanes = max(_VECTOR_BITS // bits, 1)
    plain = blocks.elementwise(b) and all(str(buffer.dtype) == "float32" for buffer in (*b.written, *b.read))
    return lanes if plain and total is not None and total % (lanes * THREADS) == 0 else 1


def _bind_elements(sch: Any, b: Block, lanes: int = 1) -> None:
    if blocks.volume(b.extents) == 0:
        sch.bind(sch.add_unit_loop(sch.get_loops(b.rv)[0]), "threadIdx.x")
        return
    loop = blocks.fused(sch, sch.get_loops(b.rv))
    if lanes == 1:
        _spread(sch, loop, _each(b))
        return
    outer, inner, vector = sch.split(loop, factors=[None, THREADS, lanes])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    sch.vectorize(vector)


def _each(b: Block) -> int:
    """How many elements of a block of many each thread computes; half as many where the number is not known."""
    total = blocks.volume(b.extents)
    if total is None:
        return _MANY // 2
    return next(n for n in (_MANY, _MANY // 2, _MANY // 4, 1) if n == 1 or total >= n * BUSY)


def _spread(sch: Any, loop: Any, each: int = 1) -> Any:
    """Bind a loop to blocks of threads, in each of which neighbours have neighbouring elements; the threads' loop."""
    outer, many, inner = sch.split(loop, factors=[None, each, THREADS])
    sch.reorder(inner, many)
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    sch.unroll(many)
    return inner


def _row_wise(func: Any, target: Any) -> Any:
    """A block of threads for each row: every reduction along it is shared among them, results stay on the chip."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    found = blocks.blocks_of(sch)
    if not all(b.spatial or b.reduction for b in found) or all(b.spatial for b in found) or _is_one_row(found):
        return None
    shared = _shared_rows(found)
    if shared == 0 or any(b.reduction and "S" in b.kinds[shared:] for b in found[:-1]):
        return None  # a row of partial results would have to fit on the chip
    for b in found:
        blocks.fused(sch, sch.get_loops(b.rv)[:shared])
        _share(sch, sch.get_loops(b.rv)[1:], b.kinds[shared:], b, _ROW_THREADS)
    return _together(sch, found)


def _one_row(func: Any, target: Any) -> Any:
    """Reductions to one element, by one block of threads; a single one by many blocks, whose results another adds."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    found = blocks.blocks_of(sch)
    reductions = [b for b in found if b.reduction]
    if not reductions or not all(b.spatial or b.reduction for b in found) or not _is_one_row(found):
        return None
    for b in found:
        loops = sch.get_loops(b.rv)
        sch.add_unit_loop(loops[0] if loops else b.rv)
    if len(reductions) == 1 and len(reductions[0].node.writes) == 1 and _divides_evenly(reductions[0]):
        _in_two_steps(sch, reductions[0])
    for b in found:
        kinds = "S" * (len(sch.get_loops(b.rv)) - 1 - _reduced(sch, b)) + "R" * _reduced(sch, b)
        _share(sch, sch.get_loops(b.rv)[1:], kinds, b, _MOST_THREADS)
    return _together(sch, found)


def _columns(func: Any, target: Any) -> Any:
    """Reductions over outer axes, and what goes with them: every block as a kernel of its own."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    found = blocks.blocks_of(sch)
    if not all(b.spatial or b.reduction for b in found) or not any(map(over_columns, found)):
        return None
    return _separate(func)


def _divides_evenly(b: Block) -> bool:
    """Whether every part of a reduction in two steps has elements: TVM leaves the others unset."""
    total = blocks.volume(b.extents)
    return total is not None and total > 0 and total % (_PARTS * _ROW_THREADS) == 0


def _is_one_row(found: list[Block]) -> bool:
    return all(extent == 1 for b in found for kind, extent in zip(b.kinds, b.extents, strict=True) if kind == "S")


def _reduced(sch: Any, b: Block) -> int:
    """How many of the loops of a block, the innermost, are reduced."""
    return sum(loop.kind == "R" for loop in blocks.loops_of(sch, blocks.block(sch, b.rv)))


def _in_two_steps(sch: Any, b: Block) -> None:
    """Spread a reduction over many blocks, each of which leaves one result to be reduced by the block `b`."""
    reduced = [loop.rv for loop in blocks.loops_of(sch, blocks.block(sch, b.rv)) if loop.kind == "R"]
    part, _ = sch.split(blocks.fused(sch, reduced), factors=[_PARTS, None])
    partial = sch.rfactor(part, 0)
    made = blocks.block(sch, partial)
    loops = blocks.loops_of(sch, made)
    spread = [loop.rv for loop in loops if 0 in loop.positions]
    inside = [loop.rv for loop in loops if loop.kind == "R"]
    sch.reorder(spread[0], *[loop.rv for loop in loops if loop.kind == "S" and 0 not in loop.positions], *inside)
    sch.bind(spread[0], "blockIdx.x")
    _, thread = sch.split(blocks.fused(sch, inside), factors=[None, _ROW_THREADS])
    sch.bind(thread, "threadIdx.x")


def _share(sch: Any, loops: Any, kinds: str, b: Block, threads: int) -> None:
    """Spread the loops of a block below the row over its threads."""
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    if spatial and reduced:
        sch.reorder(*spatial, *reduced)
    alone = reduced and all(int(e) == 1 for e in b.extents[: len(spatial)] if isinstance(e, int)) and _is_one_row([b])
    over = reduced if alone else spatial or reduced
    if not over:
        sch.bind(sch.add_unit_loop(b.rv), "threadIdx.x")
        return
    _, inner = sch.split(blocks.fused(sch, over), factors=[None, threads])
    sch.bind(inner, "threadIdx.x")


def _together(sch: Any, found: list[Block]) -> Any:
    """All blocks in one kernel, the outermost loop of each over its blocks of threads."""
    outputs = list(sch.mod["main"].params)
    # They are brought together before they are bound: only plain loops can be merged.
    firsts = [sch.get_loops(b.rv)[0] for b in found]
    row = sch.merge(*firsts) if len(firsts) > 1 else firsts[0]
    sch.bind(row, "blockIdx.x")
    for b in found:
        for i, buffer in enumerate(b.written):
            if not any(buffer.same_as(o) for o in outputs):
                sch.set_scope(b.rv, i, "shared")
    return sch.mod["main"]


def _separate(func: Any, sharing: bool = True) -> Any:
    """Every block as a kernel of its own, a thread for each element of its result; with `sharing`, sums along what lies
    side by side in memory, over columns, and to a single element, are shared by several."""
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    alone, summed = list[Block](), list[Block]()
    for b in blocks.blocks_of(sch):
        if sharing and over_columns(b) and blocks.volume(b.extents) != 0:
            rest = share_columns(sch, b)
            summed.extend([rest] if rest is not None else [])
        else:
            alone.append(b)
    joined = [reader.name for b in summed for reader in _alone(sch, b, sharing, _reader(sch, b))]
    for b in alone:
        if b.name not in joined:
            _alone(sch, b, sharing)
    return sch.mod["main"]


def _alone(sch: Any, b: Block, sharing: bool, reader: Block | None = None) -> list[Block]:
    """A block as a kernel of its own, in which also the one that reads it may take place: it is returned then."""
    loops = blocks.loops_of(sch, b)
    if not loops and not isinstance(b.node.body, tvm.BufferStore):
        return []  # launches its own threads
    spatial = [loop.rv for loop in loops if loop.kind == "S"]
    reduced = [loop.rv for loop in loops if loop.kind == "R"]
    empty = blocks.volume(b.extents) == 0
    side_by_side = b.kinds.endswith("R") and _along_rows(b)
    if sharing and spatial and b.reduction and not empty and (side_by_side or _is_one_row([b])):
        sch.reorder(*spatial, *reduced)
        _, inner = sch.split(blocks.fused(sch, reduced), factors=[None, _sharing(b)])
        sch.bind(blocks.fused(sch, spatial), "blockIdx.x")
        sch.bind(inner, "threadIdx.x")
        return []
    if not spatial or empty:
        spatial, reduced = [], [loop.rv for loop in loops]
        spatial = [sch.add_unit_loop(loops[0].rv if loops else b.rv)]
    sch.reorder(*spatial, *reduced)
    inner = _spread(sch, blocks.fused(sch, spatial), _each(b) if b.spatial and reader is None else 1)
    joined = reader is not None and _join(sch, b, reader, inner)
    if b.reduction:
        first = next((loop.rv for loop in loops if loop.kind == "R"), None)
        if first is not None:
            sch.decompose_reduction(b.rv, first)
    return [reader] if reader is not None and joined else []


def _reader(sch: Any, b: Block) -> Block | None:
    """The block that reads the results of `b`, if it is the only one, nobody else gets them, and it reads each once."""
    if any(w.same_as(o) for w in b.written for o in sch.mod["main"].params):
        return None
    readers = [blocks.block(sch, rv) for rv in sch.get_consumers(b.rv)]
    results = [e for e, kind in zip(b.extents, b.kinds, strict=True) if kind == "S" and e != 1]
    if len(readers) != 1 or not readers[0].spatial or len(sch.get_producers(readers[0].rv)) != 1:
        return None
    wanted = [e for e in readers[0].extents if e != 1]
    same = len(wanted) == len(results) and all(map(blocks.same_extent, wanted, results))
    return readers[0] if same else None


def _join(sch: Any, b: Block, reader: Block, thread: Any) -> bool:
    """Have the reader of a block take place in its threads, which keep their results to themselves."""
    try:
        sch.reverse_compute_at(reader.rv, thread)
    except tvm.ScheduleError:
        return False
    sch.set_scope(b.rv, 0, "local")
    return True


def _sharing(b: Block) -> int:
    """How many threads share a sum: few for few elements, and for a single axis where the number is not known."""
    reduced = tuple(extent for kind, extent in zip(b.kinds, b.extents, strict=True) if kind == "R")
    total = blocks.volume(reduced)
    if _is_one_row([b]) or (total is not None and total >= 8 * _MOST_THREADS):
        return _MOST_THREADS
    return _ROW_THREADS if len(reduced) > 1 or (total is not None and total >= _ROW_THREADS) else _WARP


def _inline(sch: Any) -> None:
    """Inline what computes each element on its own into what uses it: arithmetic is cheaper than memory here."""
    outputs = list(sch.mod["main"].params)
    for b in blocks.blocks_of(sch):
        if not b.spatial or any(w.same_as(o) for w in b.written for o in outputs):
            continue
        try:
            sch.compute_inline(b.rv)
        except tvm.ScheduleError:
            continue  # for instance one that an opaque block reads


_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "elemwise": (_elementwise,),
    "broadcast": (_elementwise,),
    "injective": (_elementwise,),
    "reduce": (_one_row, _columns, _dlight("Reduction")),
    "softmax": (_one_row, _columns, _dlight("GeneralReduction"), _dlight("Reduction")),
    "out_ewise_fusable": (_small_product, _matmul, _dlight("GEMV"), _dlight("Reduction")),
}
