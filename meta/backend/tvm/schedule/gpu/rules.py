"""CUDA schedules by fusion pattern: which rules are tried, in which order.

| pattern | rules, in order |
| --- | --- |
| elemwise, broadcast, injective | elementwise |
| reduce | single row, outer reductions, short rows, dlight's Reduction |
| softmax | single row, outer reductions, dlight's GeneralReduction and Reduction |
| out_ewise_fusable | dlight's Matmul, GEMV and Reduction |
| all of them | before these reductions of pairs; then outer reductions, windows, rows, elementwise, separate kernels |

dlight is TVM's library of untuned GPU schedules. A rule is skipped if it does not apply, if it fails, or if its result
violates one of `checks`. A result in which few threads do much work is taken only if no other has less. Separate
kernels fit every function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.gpu.checks import is_race_free, runs_on_device, serial_work
from meta.backend.tvm.schedule.gpu.elementwise import schedule_elementwise
from meta.backend.tvm.schedule.gpu.launch import launch_loops
from meta.backend.tvm.schedule.gpu.rows import schedule_rows, schedule_short_rows, schedule_single_row
from meta.backend.tvm.schedule.gpu.separate import (
    schedule_outer_reductions,
    schedule_pairs,
    schedule_separately,
    schedule_windows,
)

_ELEMENT_BYTES: Final = 4
"""Bytes of float32. A block of threads may move as many as the whole GPU while one more kernel starts."""
Rule = Callable[[Any, Any], Any]
"""(function, target) -> the scheduled function, or None if the rule does not apply."""


def schedule_gpu(func: tvm.PrimFunc, pattern: str, target: tvm.Target) -> Any:
    """The function with its loops bound to blocks and threads."""
    func = launch_loops(func)
    if str(func.body.block.name_hint) != "root":
        return func  # a single hand-written block
    general_rules = (schedule_outer_reductions, schedule_windows, schedule_rows, schedule_elementwise)
    rules = (schedule_pairs, *_RULES.get(pattern, ()), *general_rules)
    serial: list[tuple[int, Any]] = []
    with target:
        for rule in rules if not _is_empty(func) else ():
            scheduled = _apply(rule, func, target)
            if scheduled is not None:
                work = serial_work(scheduled)
                if work * _ELEMENT_BYTES <= limits.COPIED_BYTES_PER_KERNEL:
                    return scheduled
                serial.append((work, scheduled))
        separate = schedule_separately(func)
        if not is_race_free(separate):
            separate = schedule_separately(func, share_reductions=False)
        serial.append((serial_work(separate), separate))
        return min(serial, key=lambda each: each[0])[1]


def _is_empty(func: tvm.PrimFunc) -> bool:
    """Whether a block has no elements. The rules would allocate buffers of size 0, which TVM does not compile."""
    return any(blocks.volume(b.extents) == 0 for b in blocks.read_blocks(func))


def _apply(rule: Rule, func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """The function that the rule returns, or None if the rule does not apply, fails or violates a check.

    TVM's primitives raise ScheduleError, its internal checks TVMError and ValueError; dlight's rules raise the other
    errors for functions that they do not expect."""
    try:
        scheduled = rule(func, target)
    except (tvm.ScheduleError, tvm.TVMError, ValueError, TypeError, AssertionError, IndexError, AttributeError):
        return None
    return scheduled if scheduled is not None and runs_on_device(scheduled) and is_race_free(scheduled) else None


def _dlight(name: str) -> Rule:
    """A rule of TVM's dlight library."""

    def apply(func: tvm.PrimFunc, target: tvm.Target) -> Any:
        sch = getattr(tvm.dlight.gpu, name)().apply(func, target, False)
        return None if sch is None else sch.mod["main"]

    return apply


def _schedule_matmul(func: tvm.PrimFunc, target: tvm.Target) -> Any:
    """Rule: dlight's tiles in shared memory, for floats of 32 and 64 bits.

    For narrower dtypes dlight uses tensor cores, and crashes the process on functions that do not fit them."""
    if any(str(buffer.dtype) not in ("float32", "float64") for buffer in blocks.list_buffers(func)):
        return None
    return _dlight("Matmul")(func, target)


_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "elemwise": (schedule_elementwise,),
    "broadcast": (schedule_elementwise,),
    "injective": (schedule_elementwise,),
    "reduce": (schedule_single_row, schedule_outer_reductions, schedule_short_rows, _dlight("Reduction")),
    "softmax": (schedule_single_row, schedule_outer_reductions, _dlight("GeneralReduction"), _dlight("Reduction")),
    "out_ewise_fusable": (_schedule_matmul, _dlight("GEMV"), _dlight("Reduction")),
}
