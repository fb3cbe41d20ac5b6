"""Kernels of several launches: the blocks of threads of one launch are divided among its members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.buffers import takes_addresses


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with one launch, static sizes and no buffers. grid, threads: the loops over blocks and over the threads
    of a block.  bytes: the bytes of its parameters."""

    func: Any
    grid: Any
    threads: Any
    bytes: int

    @property
    def block_size(self) -> int:
        """The threads of a block."""
        return int(self.threads.extent)


def _bytes(buffer: tvm.Buffer) -> int:
    return (blocks.volume([blocks.as_int(d) for d in buffer.ty.shape]) or 0) * blocks.element_bits(buffer) // 8


def launch_of(func: tvm.PrimFunc) -> Launch | None:
    """The launch of a scheduled kernel; None if it cannot be a member of a bundle."""
    if takes_addresses(func) or not isinstance(func.body, tvm.SBlockRealize):
        return None
    grid = func.body.block.body
    if not _is_bound(grid, "blockIdx.x") or not _is_bound(grid.body, "threadIdx.x") or _binds_threads(grid.body.body):
        return None
    threads = grid.body
    static = all(hasattr(p.ty, "shape") and _bytes(p) for p in func.params)
    has_memory = len(blocks.list_buffers(func)) > len(func.params)
    if not static or has_memory or not all(isinstance(loop.extent, tvm.IntImm) for loop in (grid, threads)):
        return None
    return Launch(func, grid, threads, sum(map(_bytes, func.params)))


def _is_bound(loop: tvm.Object, thread: str) -> bool:
    return isinstance(loop, tvm.For) and loop.thread_binding is not None and loop.thread_binding.thread_tag == thread


def _binds_threads(body: tvm.Object) -> bool:
    bound: list[Any] = []
    tvm.structural_walk(body, (tvm.For, lambda loop: bound.append(loop) if loop.thread_binding is not None else None))
    return bool(bound)


def bundled(members: Sequence[tuple[Launch, tuple[int, ...]]], count: int) -> Any:
    """A kernel of `count` parameters with the members as branches over the index of the block of threads.

    members: kernels with equally many threads in a block, and the numbers of their arguments."""
    params: dict[int, Any] = {}
    for launch, args in members:
        for arg, param in zip(args, launch.func.params, strict=True):
            params.setdefault(arg, tvm.Var(f"p{len(params)}", param.ty))
    block, thread = tvm.Var("block", "int32"), tvm.Var("thread", "int32")
    parts: list[tuple[int, Any]] = []
    total = 0
    for launch, args in members:
        parts.append((total, _with_variables(launch, [params[a] for a in args], block - total, thread)))
        total += int(launch.grid.extent)
    first = members[0][0]
    threads = _bound("threadIdx.x", thread, first.block_size, _branches(block, parts))
    root = tvm.SBlock([], [], [], "root", _bound("blockIdx.x", block, total, threads))
    return tvm.PrimFunc([params[i] for i in range(count)], tvm.SBlockRealize([], True, root), None, first.func.attrs)


def _with_variables(launch: Launch, params: Sequence[Any], block: tvm.Expr, thread: Any) -> Any:
    """The body of one thread of a member, with its variables renamed."""
    values = {old.__chandle__(): new for old, new in zip(launch.func.params, params, strict=True)}
    for loop, value in ((launch.grid, block), (launch.threads, thread)):
        values[loop.loop_var.__chandle__()] = value.astype(str(loop.loop_var.ty.dtype))

    def renamed(var: tvm.Var) -> Any:
        address = var.__chandle__()
        if address not in values:
            values[address] = tvm.Var(var.name, var.ty)
        return values[address]

    return tvm.structural_map(launch.threads.body, (tvm.Var, renamed))


def _branches(block: tvm.Expr, parts: Sequence[tuple[int, Any]]) -> Any:
    """The part of a block of threads, found by halving."""
    if len(parts) == 1:
        return parts[0][1]
    middle = len(parts) // 2
    condition = block < parts[middle][0]
    return tvm.tirx.IfThenElse(condition, _branches(block, parts[:middle]), _branches(block, parts[middle:]))


def _bound(tag: str, var: tvm.Var, extent: int, body: tvm.Object) -> Any:
    """A loop that is bound to a thread index."""
    binding = tvm.IterVar(tvm.Range(0, extent), tvm.Var(tag, "int32"), tvm.tirx.IterVar.ThreadIndex, tag)
    zero = tvm.tirx.const(0, "int32")
    return tvm.For(var, zero, tvm.tirx.const(extent, "int32"), tvm.tirx.ForKind.THREAD_BINDING, body, binding)
