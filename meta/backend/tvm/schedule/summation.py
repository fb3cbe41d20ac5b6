"""Sums in blocks of steps, so that their rounding errors do not grow with the number of elements.

A loop that adds n numbers to one accumulator has an error that grows with n: float32 counts to 2**24 and no further.
`block_sums` rewrites such loops of scheduled functions, with at most `length` additions per block:

    for each block but the last:
        for its steps: sum[i] = sum[i] + x[i, k]         as before, without the bounds check of the last step
        (high[i], low[i]) += sum[i]; sum[i] = 0
    for the steps of the last block: sum[i] = sum[i] + x[i, k]
    sum[i] = high[i] + (low[i] + sum[i])                 if there was another block

`high` and `low` are one number of twice the digits, a rounded sum and what its rounding has lost: Knuth's TwoSum (The
Art of Computer Programming 2, section 4.2.2, theorem B) and a sum of such numbers as in Dekker (Numerische Mathematik
18, 1971). The error is then no larger than for one block, for every n, in float32 and in float64. The index i covers
all that the loops compute at once: vector lanes and registers in the sum of a contiguous axis, columns in a sum over
outer axes, the register tile of a contraction.

Where it costs nothing, a step adds several numbers by halves first. On GPUs, so do sums of partial results.

Static sums of one block keep their loops on a CPU. Products keep theirs, since their error is the same in any order.
"""

from __future__ import annotations

from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.block_division import divide
from meta.backend.tvm.schedule.nest import Nest, Values, map_sums, substitute, uses, volume_of

Expr = Any
Stmt = Any


def block_sums(func: tvm.PrimFunc) -> Any:
    """`func`, scheduled for a CPU, with its floating sums in blocks, and its sums of vector lanes by halves."""
    return map_sums(func, _rewrite_sum)


def block_sums_of_threads(func: tvm.PrimFunc) -> Any:
    """`func`, scheduled for a GPU, with the floating sums of each thread in blocks.

    Reductions that threads share are lowered first to the sum of each thread, which is a loop, and an exchange; TVM
    would do so later."""
    lower = tvm.s_tir.transform.LowerCrossThreadReduction()
    return map_sums(lower(tvm.IRModule({"main": func}))["main"], lambda nest: _rewrite_sum(nest, "local"))


def _rewrite_sum(nest: Nest, scope: str = "") -> Stmt | None:
    """The nest in blocks, or by halves of lanes, as an opaque block; None if it stays as it is.

    scope: where the sums of blocks are stored; on a CPU, TVM chooses."""
    length = limits.CONTRACTION_BLOCK if _is_contraction(nest) else limits.SUM_BLOCK
    if nest.is_long(length) or (bool(scope) and _adds_partial_results(nest)):
        body, buffers = divide(nest, length, scope)
    elif not scope and _sums_lanes(nest):
        body, buffers = _halve(nest), []
    else:
        return None
    return tvm.SBlockRealize([], True, tvm.SBlock([], [], [], "block_sums", body, None, buffers))


def _is_contraction(nest: Nest) -> bool:
    """Whether the sum is of products of two operands, and the loop over some axis of the elements moves only one of
    them."""
    product = nest.store.value.b
    if not isinstance(product, tvm.tirx.Mul):
        return False
    variables = [loop.loop_var for loop in nest.elements if blocks.as_int(loop.extent) != 1]
    return any(uses([product.a], v) != uses([product.b], v) for v in variables)


def _sums_lanes(nest: Nest) -> bool:
    """Whether the sum adds vector lanes, a power of two of them, that nothing else reads."""
    lanes = volume_of(nest.steps) or 0
    is_power = lanes >= 4 and lanes & (lanes - 1) == 0
    return nest.sums_lanes and is_power and len(nest.steps) == 1 and volume_of(nest.inner) == 1 and not nest.conditions


def _halve(nest: Nest) -> Stmt:
    """The sum of lanes in vectors: the second half is added to the first until one lane is left.

    The error is the same as for log2(lanes) additions. The lanes are overwritten."""
    value, count = nest.store.value.b, volume_of(nest.steps) or 1
    values: Values = {loop.loop_var: loop.min for loop in nest.inner}
    row = [substitute(i, values) for i in value.indices[:-1]]
    dtype = str(nest.steps[0].loop_var.ty.dtype)
    parts = list[Stmt]()
    while count > 1:
        count //= 2
        lane = tvm.Var("lane", dtype)
        index = [*row, lane]
        added = tvm.BufferStore(
            value.source, value.source[tuple(index)] + value.source[(*row, lane + tvm.tirx.const(count, dtype))], index
        )
        kind = tvm.tirx.ForKind.VECTORIZED
        parts.append(tvm.For(lane, tvm.tirx.const(0, dtype), tvm.tirx.const(count, dtype), kind, added))
    return tvm.SeqStmt([*parts, substitute(nest.store, {**values, nest.steps[0].loop_var: tvm.tirx.const(0, dtype)})])


def _adds_partial_results(nest: Nest) -> bool:
    """Whether the sum adds several numbers in a single loop, such as the partial results of threads."""
    return len(nest.steps) == 1 and nest.inner_additions == 1 and nest.is_long(limits.GPU_FEW_ADDITIONS)
