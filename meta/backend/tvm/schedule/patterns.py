"""Schedules of TIR functions by fusion pattern.

`schedule` takes a TIR function as TE or Relax emits it, in which every block is a plain serial loop nest, and returns a
function with the same results whose loops suit the target. On CUDA, `gpu.rules` does all of it. On the CPU the pattern
selects a list of rules, the most specific first:

| pattern | rules | loop structure |
| --- | --- | --- |
| any, with a sum over register tiles | schedule_tiles | register tiles over cache blocks |
| elemwise, broadcast, injective | schedule_elementwise | one parallel loop with a vectorised inner loop per output |
| reduce, softmax | schedule_rows | one parallel loop over rows; each row stays in the first-level cache |
| out_ewise_fusable | schedule_contraction | packed operands, register tiles over cache blocks |
| all of them, if those do not apply | schedule_separately | one loop nest per block |

A rule that does not apply returns None or raises TVM's `ScheduleError`, and the next rule is tried. If no rule applies,
the function keeps its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import dtype_of
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.buffers import relax_alignment, shrink_row_buffers
from meta.backend.tvm.schedule.cpu.elementwise import schedule_elementwise
from meta.backend.tvm.schedule.cpu.matmul import match_contraction, schedule_contraction
from meta.backend.tvm.schedule.cpu.rows import initialise_first, schedule_rows, schedule_separately
from meta.backend.tvm.schedule.cpu.tiles import schedule_tiles
from meta.backend.tvm.schedule.summation import block_sums, block_sums_of_threads
from meta.backend.tvm.target import tentative
from meta.backend.tvm.te.math import vectorisable
from meta.backend.tvm.te.tiles import TILE
from meta.backend.tvm.workarounds.exact import exact
from meta.backend.tvm.workarounds.loop_partition import keep_conditions
from meta.ir.type import PATTERNS

Rule = Callable[[Any], Any]
"""A rule applies primitives to a `Schedule` and returns it (or another one), or returns None if it does not apply."""


def schedule(func: tvm.PrimFunc, pattern: str, target: tvm.Target) -> Any:
    """The scheduled function.

    Args:
        func: a `PrimFunc` over buffers.
        pattern: one of `PATTERNS`, a hint that need not fit; any other value has `classify` choose.
        target: the TVM target.
    """
    pattern = pattern if pattern in PATTERNS else classify(func)
    if str(target.kind.name) == "cuda":
        from meta.backend.tvm.schedule.gpu.rules import schedule_gpu  # kernels of the CPU do without it

        return block_sums_of_threads(exact(schedule_gpu(func, pattern, target), across_threads=True))
    func = _narrow_indices(vectorisable(func))
    return shrink_row_buffers(block_sums(keep_conditions(exact(relax_alignment(_schedule_cpu(func, pattern))))))


def classify(func: tvm.PrimFunc) -> str:
    """The pattern of a function, derived from its blocks."""
    if str(func.body.block.name_hint) != "root":
        return "opaque"
    all_blocks = blocks.read_blocks(func)
    if not all_blocks or not all(b.is_spatial or b.is_reduction for b in all_blocks):
        return "opaque"
    reductions = [b for b in all_blocks if b.is_reduction]
    if not reductions:
        return "elemwise" if all(blocks.is_elementwise(b) for b in all_blocks) else "injective"
    if len(reductions) > 1:
        return "softmax"
    return "reduce" if match_contraction(reductions[0]) is None else "out_ewise_fusable"


def _schedule_cpu(func: tvm.PrimFunc, pattern: str) -> Any:
    for rule in (*((schedule_tiles,) if _has_tiles(func) else ()), *_RULES.get(pattern, ())):
        scheduled = _apply(rule, func)
        if scheduled is not None:
            return scheduled
    return _apply(_keep_loops, func) or func


def _has_tiles(func: tvm.PrimFunc) -> bool:
    """Whether a sum over register tiles is in a function."""
    tiles: list[Any] = []
    tvm.structural_walk(func.body, (tvm.SBlock, lambda b: tiles.append(b) if TILE in b.annotations else None))
    return bool(tiles)


def _apply(rule: Rule, func: tvm.PrimFunc) -> Any:
    """The function that the rule returns, or None if the rule does not apply or fails.

    TVM raises ScheduleError where a primitive's condition is violated, and the other errors from internal checks."""
    with tentative() as keep:
        try:
            sch = rule(tvm.Schedule(func, error_render_level="fast"))
        except (tvm.ScheduleError, tvm.TVMError, ValueError):
            return None
        if sch is None:
            return None
        keep()
    return sch.mod["main"]


def _keep_loops(sch: tvm.Schedule) -> Any:
    """Rule of last resort: only the initial values move before the loops of the reductions."""
    initialise_first(sch, blocks.list_blocks(sch))
    return sch


def _narrow_indices(func: tvm.PrimFunc) -> Any:
    """`func` with 32-bit indices if every buffer is static, below 2**31 elements and of a dtype whose values int32
    holds, as they may be indices, and no literal or value in an expression needs 64 bits.

    TVM narrows loops itself later in lowering, but then drops the hints on loops whose tails are to be split off."""
    if not all(_fits_int32(v.ty) for v in blocks.list_buffers(func)) or _needs_64_bits(func):
        return func
    return tvm.tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))["main"]


def _needs_64_bits(func: tvm.PrimFunc) -> bool:
    """Whether a literal exceeds 32 bits, or a cast or call makes integers of 64 bits of elements or floats: TVM would
    also narrow what is computed from them."""
    literals, operands, bound = list[int](), list[Any](), list[Any]()

    def visit(node: tvm.Expr) -> None:
        if dtype_of(node) in _WIDE_INTEGERS:
            operands.extend([node.value] if isinstance(node, tvm.tirx.Cast) else node.args)

    tvm.structural_walk(
        func.body,
        [
            (tvm.IntImm, lambda literal: literals.append(int(literal))),
            ((tvm.tirx.Cast, tvm.Call), visit),
            (tvm.tirx.Let, lambda let: bound.append(let.var)),
        ],
    )
    if any(not -(1 << 31) <= value < 1 << 31 for value in literals):
        return True
    return any(_is_element(operand, bound) for operand in operands)


def _is_element(value: Any, bound: Sequence[Any]) -> bool:
    """Whether a value is a float, or computed of elements. bound: the variables with values that may be."""
    elements: list[Any] = []
    tvm.structural_walk(
        value,
        [
            (tvm.TensorLoad, elements.append),
            (tvm.Var, lambda var: elements.append(var) if any(var.same_as(v) for v in bound) else None),
        ],
    )
    return bool(elements) or dtype_of(value) in dtypes.FLOATS


def _fits_int32(buffer_type: Any) -> bool:
    volume = blocks.volume([blocks.as_int(d) for d in buffer_type.shape])
    return volume is not None and volume < 1 << 31 and str(buffer_type.dtype) not in _WIDE_INTEGERS


_WIDE_INTEGERS: Final = ("int64", "uint64", "uint32")
_SPATIAL_RULES: Final = (schedule_elementwise, schedule_rows, schedule_separately)
_REDUCTION_RULES: Final = (schedule_rows, schedule_separately)
_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "elemwise": _SPATIAL_RULES,
    "broadcast": _SPATIAL_RULES,
    "injective": _SPATIAL_RULES,
    "reduce": _REDUCTION_RULES,
    "softmax": _REDUCTION_RULES,
    "out_ewise_fusable": (schedule_contraction, schedule_rows, schedule_separately),
}
