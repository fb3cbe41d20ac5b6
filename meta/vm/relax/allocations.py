"""How many bytes a planned program allocates, known before it runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.records import record


@record
class PlannedBytes:
    """The allocations of a program's memory plan, in bytes.

    intermediates: storage shared by what is computed on the way, with that of called functions.
    outputs: storage of the results.  workspace: the most that one kernel allocates while it runs.
    dynamic: tensors whose size is known only when running; they are not counted."""

    intermediates: int
    outputs: int
    workspace: int
    dynamic: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def planned_bytes(module: Any) -> PlannedBytes:
    """The allocations of a planned Relax module."""
    intermediates = outputs = dynamic = workspace = 0
    for function in module.functions.values():
        if isinstance(function, tvm.PrimFunc):
            workspace = max(workspace, _workspace(function))
            continue
        for call in _calls(function):
            name = getattr(call.op, "name", "")
            if name not in ("relax.memory.alloc_storage", "relax.builtin.alloc_tensor"):
                continue
            size = _product(call.args[0])
            if size is None:
                dynamic += 1
            elif name == "relax.memory.alloc_storage":
                intermediates += size
            else:
                outputs += size * itemsize(str(call.args[1].value))
    return PlannedBytes(intermediates, outputs, workspace, dynamic)


def _calls(function: Any) -> list[Any]:
    return [
        b.value
        for block in function.body.blocks
        for b in block.bindings
        if isinstance(b, tvm.VarBinding) and isinstance(b.value, tvm.RelaxCall)
    ]


def _product(shape: Any) -> int | None:
    total = 1
    for d in shape.values:
        if not isinstance(d, (int, tvm.IntImm)):
            return None
        total *= int(d)
    return total


_EXACT_BYTES: Final = 1 << 20
"""Bytes from which a kernel is lowered to count them."""
_COMPACTION: Final = ("PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "CompactBufferAllocation")
"""TVM's passes that reduce buffers to the parts that are in use."""


def _workspace(func: Any) -> int:
    """Bytes of the buffers in global memory that a kernel allocates itself, where their sizes are known."""
    total = _allocated(func)
    if total < _EXACT_BYTES:
        return total
    # Most are small parts of the tensors that they are declared as, which shows when blocks are lowered to loops.
    lowered = func.with_attr("global_symbol", "main")
    passes = [getattr(tvm.block_transform, name)() for name in _COMPACTION]
    return _allocated(tvm.Sequential(passes)(tvm.IRModule({"main": lowered}))["main"])


def _allocated(func: Any) -> int:
    total = 0

    def visit(block: Any) -> None:
        nonlocal total
        for buffer in block.alloc_buffers:
            if buffer.scope() not in ("", "global"):
                continue
            size = itemsize(str(buffer.dtype))
            for d in buffer.shape:
                size *= int(d) if isinstance(d, tvm.IntImm) else 0
            total += size

    tvm.structural_walk(func.body, (tvm.SBlock, visit))
    return total
