"""CUDA schedules: TVM's dlight rules by pattern, rules of our own, and one that fits everything.

A rule that refuses a function, trips over it, or leaves memory to be read on the host, is passed over for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta.op.dialect.tvm import _adapter as tvm
from meta.op.dialect.tvm import _blocks as blocks
from meta.op.dialect.tvm._blocks import Block
from meta.op.dialect.tvm._launch import launched
from meta.op.dialect.tvm._schedule_rows import _shared_rows

THREADS: Final = 256
"""Threads of a block that each compute elements of their own."""
_ROW_THREADS: Final = 256
"""Threads of a block that reduce a row together."""
_VECTOR_BITS: Final = 128
"""The widest load of one thread."""

Rule = Callable[[Any, Any], Any]
"""(function, target) -> the scheduled function, or None where the rule does not apply."""


def schedule_gpu(func: Any, pattern: str, target: Any) -> Any:
    """The function with its loops bound to blocks and threads."""
    func = launched(func)
    if str(func.body.block.name_hint) != "root":
        return func  # one hand-written block
    with target:
        for rule in (*_RULES.get(pattern, ()), _row_wise, _elementwise):
            found = _attempt(rule, func, target)
            if found is not None:
                return found
        return _separate(func)


def _attempt(rule: Rule, func: Any, target: Any) -> Any:
    try:
        found = rule(func, target)
    except (tvm.ScheduleError, tvm.TVMError, ValueError, TypeError, AssertionError, IndexError, AttributeError):
        # What TVM's primitives refuse, its internal checks, and what dlight's rules trip over in programs that they do
        # not foresee.
        return None
    return found if found is not None and _on_device(found) else None


def _on_device(func: Any) -> bool:
    """Whether no loop that touches memory is left to the host."""
    touched: list[bool] = []

    def visit(statement: Any, inside: bool) -> None:
        if isinstance(statement, tvm.For):
            visit(statement.body, inside or statement.kind == tvm.tirx.ForKind.THREAD_BINDING)
        elif isinstance(statement, tvm.SeqStmt):
            for part in statement.seq:
                visit(part, inside)
        elif isinstance(statement, tvm.SBlockRealize):
            visit(statement.block.body, inside)
        elif isinstance(statement, tvm.tirx.IfThenElse):
            visit(statement.then_case, inside)
            if statement.else_case is not None:
                visit(statement.else_case, inside)
        else:
            touched.append(inside)

    visit(func.body, False)
    return all(touched)


# --- rules -----------------------------------------------------------------------------------------------------------


def _dlight(name: str) -> Rule:
    def apply(func: Any, target: Any) -> Any:
        made = getattr(tvm.dlight.gpu, name)().apply(func, target, False)
        return None if made is None else made.mod["main"]

    return apply


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
    return sch.mod["main"]


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
    loop = _fused(sch, sch.get_loops(b.rv))
    factors = [None, THREADS, lanes] if lanes > 1 else [None, THREADS]
    outer, inner, *vector = sch.split(loop, factors=factors)
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if vector:
        sch.vectorize(vector[0])


def _row_wise(func: Any, target: Any) -> Any:
    """A block of threads for each row: every reduction along it is shared among them, results stay on the chip."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    found = blocks.blocks_of(sch)
    if not all(b.spatial or b.reduction for b in found) or all(b.spatial for b in found):
        return None
    scalars = [b for b in found if not b.kinds.startswith("S")]
    if scalars and any("S" in b.kinds for b in found):
        return None
    shared = 0 if scalars else _shared_rows(found)
    if not scalars and shared == 0:
        return None
    outputs = list(sch.mod["main"].params)
    if any(b.reduction and "S" in b.kinds[shared:] for b in found[:-1]):
        return None  # a row of partial results would have to fit on the chip
    for b in found:
        _rows(sch, b, shared)
        _share(sch, b, sch.get_loops(b.rv)[1:], shared)
    # Blocks are brought together before they are bound: only plain loops can be merged.
    firsts = [sch.get_loops(b.rv)[0] for b in found]
    row = sch.merge(*firsts) if len(firsts) > 1 else firsts[0]
    sch.bind(row, "blockIdx.x")
    for b in found:
        for i, buffer in enumerate(b.written):
            if not any(buffer.same_as(o) for o in outputs):
                sch.set_scope(b.rv, i, "shared")
    return sch.mod["main"]


def _rows(sch: Any, b: Block, shared: int) -> None:
    """Make the outermost loop one over the rows."""
    loops = sch.get_loops(b.rv)
    if shared:
        _fused(sch, loops[:shared])
    else:
        sch.add_unit_loop(loops[0] if loops else b.rv)


def _share(sch: Any, b: Block, loops: Any, shared: int) -> None:
    """Spread the loops of a block below the row over its threads."""
    kinds = b.kinds[shared:]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    if spatial and reduced:
        sch.reorder(*spatial, *reduced)
    over = spatial or reduced
    if not over:
        sch.bind(sch.add_unit_loop(b.rv), "threadIdx.x")
        return
    _, inner = sch.split(_fused(sch, over), factors=[None, _ROW_THREADS])
    sch.bind(inner, "threadIdx.x")


def _separate(func: Any) -> Any:
    """Every block as a kernel of its own, a thread for each element of its result."""
    sch = tvm.Schedule(func, error_render_level="fast")
    _inline(sch)
    for b in blocks.blocks_of(sch):
        loops = blocks.loops_of(sch, b)
        if not loops and not isinstance(b.node.body, tvm.BufferStore):
            continue  # launches its own threads
        spatial = [loop.rv for loop in loops if loop.kind == "S"]
        reduced = [loop.rv for loop in loops if loop.kind == "R"]
        if not spatial or blocks.volume(b.extents) == 0:
            spatial, reduced = [], [loop.rv for loop in loops]
            spatial = [sch.add_unit_loop(loops[0].rv if loops else b.rv)]
        sch.reorder(*spatial, *reduced)
        outer, inner = sch.split(_fused(sch, spatial), factors=[None, THREADS])
        sch.bind(outer, "blockIdx.x")
        sch.bind(inner, "threadIdx.x")
        if b.reduction:
            first = next((loop.rv for loop in loops if loop.kind == "R"), None)
            if first is not None:
                sch.decompose_reduction(b.rv, first)
    return sch.mod["main"]


def _fused(sch: Any, loops: Any) -> Any:
    loops = list(loops)
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


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
    "reduce": (_dlight("Reduction"),),
    "softmax": (_dlight("GeneralReduction"), _dlight("Reduction")),
    "out_ewise_fusable": (_matmul, _dlight("GEMV"), _dlight("Reduction")),
}
