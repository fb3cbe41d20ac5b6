"""CUDA rule for spatial blocks: elementwise, broadcast, layout changes.

Producers are inlined, because arithmetic costs less than memory access here, and each remaining block becomes a kernel
over its fused loops:

    blocks of 256 threads; per thread 1 to 8 elements, 256 apart, so that adjacent threads access adjacent elements

Several elements per thread pay if there are enough elements to keep the GPU busy: with one, launching threads took
longer than memory access (cast of 8192x8192 float32 to float16: 184 us, now 95). Static float32 blocks access 16 bytes
at once instead.
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import Block
from meta.backend.tvm.schedule.gpu.columns import BUSY_THREADS

_BLOCK_THREADS: Final = 256
_VECTOR_BITS: Final = 128
"""The widest load of one thread."""
_MAX_THREAD_ELEMENTS: Final = 8


def schedule_elementwise(func: Any, target: Any) -> Any:
    """Rule: one kernel per output. Applies if all blocks that remain after inlining are spatial and have loops."""
    del target
    sch = tvm.Schedule(func, error_render_level="fast")
    inline_producers(sch)
    all_blocks = blocks.list_blocks(sch)
    if not all_blocks or not all(b.is_spatial and sch.get_loops(b.rv) for b in all_blocks):
        return None
    for block in all_blocks:
        _bind_block(sch, block)
    scheduled = sch.mod["main"]
    return _load_both_sides(scheduled) if all(map(blocks.is_elementwise, all_blocks)) else scheduled


def inline_producers(sch: Any) -> None:
    """Inline all spatial blocks into their consumers: repeated arithmetic costs less than memory access on a GPU."""
    params = list(sch.mod["main"].params)
    for block in blocks.list_blocks(sch):
        if not block.is_spatial or any(w.same_as(p) for w in block.written_buffers for p in params):
            continue
        try:
            sch.compute_inline(block.rv)
        except tvm.ScheduleError:
            continue  # for instance a block whose consumer is opaque


def bind_threads(sch: Any, loop: Any, thread_elements: int = 1) -> Any:
    """Bind a loop to blocks of threads with `thread_elements` iterations per thread; returns the threads' loop.

    Iterations of a thread are a block's threads apart, so that adjacent threads access adjacent elements."""
    outer, element, thread = sch.split(loop, factors=[None, thread_elements, _BLOCK_THREADS])
    sch.reorder(thread, element)
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.unroll(element)
    return thread


def choose_thread_elements(block: Block) -> int:
    """Elements per thread: the most with which the threads keep the GPU busy; half the maximum at symbolic sizes."""
    total = blocks.volume(block.extents)
    if total is None:
        return _MAX_THREAD_ELEMENTS // 2
    counts = (_MAX_THREAD_ELEMENTS, _MAX_THREAD_ELEMENTS // 2, _MAX_THREAD_ELEMENTS // 4, 1)
    return next(n for n in counts if n == 1 or total >= n * BUSY_THREADS)


def _bind_block(sch: Any, block: Block) -> None:
    if blocks.volume(block.extents) == 0:
        sch.bind(sch.add_unit_loop(sch.get_loops(block.rv)[0]), "threadIdx.x")
        return
    loop = blocks.fuse_loops(sch, sch.get_loops(block.rv))
    vector_lanes = _choose_vector_lanes(block)
    if vector_lanes == 1:
        bind_threads(sch, loop, choose_thread_elements(block))
        return
    outer, thread, vector = sch.split(loop, factors=[None, _BLOCK_THREADS, vector_lanes])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(vector)


def _choose_vector_lanes(block: Block) -> int:
    """Elements per load and store: 4 for a static float32 block that whole blocks of threads cover, else 1."""
    total = blocks.volume(block.extents)
    buffers = (*block.written_buffers, *block.read_buffers)
    vector_lanes = max(_VECTOR_BITS // block.element_bits, 1)
    is_float32 = blocks.is_elementwise(block) and all(str(buffer.dtype) == "float32" for buffer in buffers)
    fits = is_float32 and total is not None and total % (vector_lanes * _BLOCK_THREADS) == 0
    return vector_lanes if fits else 1


def _load_both_sides(func: Any) -> Any:
    """`func` with both values of each selection loaded before the condition is evaluated.

    TVM emits a branch that loads one value after the condition's own load has arrived. Only elementwise blocks may load
    both: their operands have an element at every position. Values without loads stay as they are, because TVM fails to
    analyse variables bound to products of an index and a parameter."""

    def bind_sides(choice: Any) -> Any:
        sides = (choice.true_value, choice.false_value)
        if not any(map(_has_load, sides)):
            return choice
        variables = [tvm.tirx.Var("side", str(side.ty.dtype)) for side in sides]
        expr = tvm.tirx.Select(choice.condition, *variables)
        for variable, side in zip(variables, sides, strict=True):
            expr = tvm.tirx.Let(variable, side, expr)
        return expr

    return tvm.structural_map(func, (tvm.tirx.Select, bind_sides))


def _has_load(value: Any) -> bool:
    loads: list[Any] = []
    tvm.structural_walk(value, (tvm.TensorLoad, loads.append))
    return bool(loads)
