"""PrimFuncs of meta's computes with TVM's operators only, for a process that does not have meta.

meta's computes call operators that the end of its own lowering expands: transcendental functions that vectorise,
literals that TVM's simplifier does not see, random bits. Each becomes what other targets than LLVM get for it."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.cpu.rows import initialise_first
from meta.backend.tvm.te.philox import PHILOX
from meta.backend.tvm.te.philox_expansion import expand

_PREFIX: Final = "meta."


def portable(func: Any) -> Any:
    """The function without operators of meta, and with results for reductions over no elements."""
    return expand(tvm.structural_map(_initialised(func), (tvm.Call, _expanded)))


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", ""))


def _expanded(call: Any) -> Any:
    name = _name(call)
    if not name.startswith(_PREFIX) or name.startswith(PHILOX):
        return call
    expansion = call.op.get_attr("default.FLowerIntrinsic")
    return call if expansion is None else expansion(call)


def _initialised(func: Any) -> Any:
    """The function with the initial values of reductions over no elements, which their loops would never write."""
    schedule = tvm.Schedule(func)
    try:
        loops = blocks.list_blocks(schedule)
    except tvm.ScheduleError:  # loops written by hand, which initialise what they write
        return func
    empty = [block for block in loops if block.is_reduction and _has_no_steps(block)]
    if not empty:
        return func
    initialise_first(schedule, empty)
    return schedule.mod["main"]


def _has_no_steps(block: blocks.ComputeBlock) -> bool:
    return any(e == 0 for e, kind in zip(block.extents, block.kinds, strict=True) if kind == "R")
