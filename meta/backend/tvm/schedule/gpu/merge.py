"""Loop nests of one function as one nest, so that a kernel with several results reads its operands once.

    for i: v1[i] = f(v[i], dx[i])              for i:
    for i: x1[i] = x[i] - r * v1[i]      =>      v1[i] = f(v[i], dx[i])
                                                 x1[i] = x[i] - r * v1[i]

An optimizer's update is such a function: as one kernel per result, it would load the gradient and the state twice.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks


def merge_nests(func: tvm.PrimFunc) -> Any:
    """`func` with all of its loop nests merged; `func` itself unless there are several, over one shape, and each reads
    what the others write only at its own position."""
    sch = tvm.Schedule(func, error_render_level="fast")
    all_blocks = blocks.list_blocks(sch)
    first = all_blocks[0] if all_blocks else None
    if first is None or len(all_blocks) < 2:
        return func
    written = [buffer for block in all_blocks for buffer in block.written_buffers]
    if not all(blocks.is_elementwise(block, written) for block in all_blocks):
        return func
    if not all(_same_extents(block.extents, first.extents) for block in all_blocks):
        return func
    nests = [_nest(sch, block) for block in all_blocks]
    loops, _ = nests[0]
    if not loops or any(len(other) != len(loops) for other, _ in nests):
        return func
    bodies = [_renamed(realize, own, loops) for own, realize in nests]
    return _with_body(func, _around(loops, tvm.SeqStmt(bodies)))


def _same_extents(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(map(blocks.equal_extents, a, b))


def _nest(sch: tvm.Schedule, block: blocks.ComputeBlock) -> tuple[list[Any], Any]:
    """The loops around a block, outermost first, and its realisation."""
    loops = [sch.get(loop) for loop in sch.get_loops(block.rv)]
    return loops, loops[-1].body if loops else None


def _renamed(realize: tvm.SBlockRealize, own: list[Any], loops: list[Any]) -> Any:
    """A block's realisation inside of other loops of the same extents."""
    variables = {old.loop_var: new.loop_var for old, new in zip(own, loops, strict=True)}
    return tvm.structural_map(realize, (tvm.Var, lambda v: variables.get(v, v)))


def _around(loops: list[Any], body: tvm.Object) -> Any:
    for loop in reversed(loops):
        body = tvm.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)
    return body


def _with_body(func: tvm.PrimFunc, body: tvm.Object) -> Any:
    """`func` with another statement under its root block."""
    root = func.body.block
    root = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, root.alloc_buffers,
        root.match_buffers, root.annotations,
    )  # fmt: skip
    return tvm.PrimFunc(func.params, tvm.SBlockRealize([], True, root), func.ret_type, func.attrs)
