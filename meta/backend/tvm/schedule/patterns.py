"""Schedules by fusion pattern.

`schedule` turns a TIR function as TE or Relax made it into one that runs fast, on any target, without changing what
it computes. Rules are tried from the most specific to the most general; one that does not fit says so by returning
None or by TVM's `ScheduleError`, and the last one fits everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.alignment import any_alignment
from meta.backend.tvm.schedule.cpu.elementwise import elementwise
from meta.backend.tvm.schedule.cpu.matmul import contraction, roles_of
from meta.backend.tvm.schedule.cpu.rows import row_wise, separate
from meta.backend.tvm.schedule.gpu.rules import schedule_gpu
from meta.backend.tvm.te.math import vectorisable
from meta.ir.pattern import PATTERNS

Rule = Callable[[Any], Any]
"""A rule schedules the `Schedule` that it is given and returns it, or returns None where it does not apply."""


def schedule(func: Any, pattern: str, target: Any) -> Any:
    """The scheduled function.

    Args:
        func: a `PrimFunc` over buffers.
        pattern: a hint, one of `PATTERNS`; with another value (or one that does not fit) `classify` decides.
        target: what the function is for.
    """
    if str(target.kind.name) == "cuda":
        return schedule_gpu(func, pattern if pattern in PATTERNS else classify(func), target)
    func = _narrow(vectorisable(func))
    return any_alignment(_on_cpu(func, pattern if pattern in PATTERNS else classify(func)))


def _on_cpu(func: Any, pattern: str) -> Any:
    for rule in _RULES.get(pattern, ()):
        scheduled = _attempt(rule, func)
        if scheduled is not None:
            return scheduled
    return _attempt(_safe, func) or func


def classify(func: Any) -> str:
    """The pattern of a function, by what its blocks do."""
    try:
        found = blocks.blocks_of(tvm.Schedule(func))
    except tvm.ScheduleError:
        return "opaque"
    if not found or not all(b.spatial or b.reduction for b in found):
        return "opaque"
    reductions = [b for b in found if b.reduction]
    if not reductions:
        return "elemwise" if all(blocks.elementwise(b) for b in found) else "injective"
    if len(reductions) > 1:
        return "softmax"
    return "reduce" if roles_of(reductions[0]) is None else "out_ewise_fusable"


def _narrow(func: Any) -> Any:
    """`func` with 32-bit indices, if all it does fits.

    TVM narrows loops by itself, but later, and then forgets which loops are marked to have their tails split off.
    """
    if not all(_fits(v.ty) for v in blocks.buffers_of(func)):
        return func
    return tvm.tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))["main"]


def _fits(buffer_type: Any) -> bool:
    volume = blocks.volume(tuple(blocks.static(d) for d in buffer_type.shape))
    return volume is not None and volume < 1 << 31 and str(buffer_type.dtype) not in ("int64", "uint64")


def _attempt(rule: Rule, func: Any) -> Any:
    """The function as the rule leaves it, or None."""
    try:
        sch = rule(tvm.Schedule(func, error_render_level="fast"))
    except (tvm.ScheduleError, tvm.TVMError, ValueError):
        # Whatever TVM's primitives refuse, and its internal checks, which programs that they do not foresee run into.
        return None
    return None if sch is None else sch.mod["main"]


def _safe(sch: Any) -> Any:
    """Only what an extent of zero needs: reductions set their result before they look at elements, not at the first."""
    for b in blocks.blocks_of(sch):
        if b.reduction:
            sch.decompose_reduction(b.rv, next(loop.rv for loop in blocks.loops_of(sch, b) if loop.kind == "R"))
    return sch


_SPATIAL: Final = (elementwise, row_wise, separate)
_REDUCING: Final = (row_wise, separate)
_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "elemwise": _SPATIAL,
    "broadcast": _SPATIAL,
    "injective": _SPATIAL,
    "reduce": _REDUCING,
    "softmax": _REDUCING,
    "out_ewise_fusable": (contraction, row_wise, separate),
}
