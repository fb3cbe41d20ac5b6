"""The memory that scheduled kernels allocate themselves."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize

_EXACT_BYTES: Final = 1 << 20
"""Bytes from which a kernel is lowered to count them."""
_COMPACTION: Final = ("PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "CompactBufferAllocation")
"""TVM's passes that reduce buffers to the parts that are in use."""


def allocated_bytes(func: Any) -> int:
    """Bytes of the buffers in global memory that a kernel allocates itself, where their sizes are known."""
    total = _allocated(func)
    if total < _EXACT_BYTES:
        return total
    # Most are small parts of the tensors that they are declared as, which shows when blocks are lowered to loops.
    lowered = func.with_attr("global_symbol", "main")
    passes = [getattr(tvm.block_transform, name)() for name in _COMPACTION]
    return _allocated(tvm.Sequential(passes)(tvm.IRModule({"main": lowered}))["main"])


def _allocated(func: Any) -> int:
    found: list[Any] = []
    tvm.structural_walk(func.body, (tvm.SBlock, lambda block: found.extend(block.alloc_buffers)))
    return sum(map(_bytes, found))


def lasting_buffers(func: Any, least: int) -> list[Any]:
    """The buffers of at least `least` bytes that several loop nests of a kernel use, which are allocated as a whole."""
    if not any(_bytes(b) >= least for b in _root_buffers(func)):
        return []
    located = tvm.block_transform.PlanAndUpdateBufferAllocationLocation()
    module = located(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    remaining = _root_buffers(module["main"])
    return [b for b in _root_buffers(func) if _bytes(b) >= least and any(b.same_as(r) for r in remaining)]


def _root_buffers(func: Any) -> list[Any]:
    return list(func.body.block.alloc_buffers) if isinstance(func.body, tvm.SBlockRealize) else []


def _bytes(buffer: Any) -> int:
    """The bytes of a buffer in global memory; 0 for other memory, and if its size is symbolic."""
    if buffer.scope() not in ("", "global") or not all(isinstance(d, tvm.IntImm) for d in buffer.shape):
        return 0
    return prod(map(int, buffer.shape)) * itemsize(str(buffer.dtype))


def with_parameters(func: Any, buffers: list[Any]) -> Any:
    """A kernel that takes some of its buffers as further parameters."""
    root = func.body.block
    own_buffers = [b for b in root.alloc_buffers if not any(b.same_as(x) for x in buffers)]
    block = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body, root.init, own_buffers, root.match_buffers,
        root.annotations,
    )  # fmt: skip
    body = tvm.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tvm.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs)
