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
18, 1971). The error is then that of one block, for every n, in float32 and in float64. The index i covers all that the
loops compute at once: vector lanes and registers in the sum of a contiguous axis, columns in a sum over outer axes, the
register tile of a contraction.

Where it costs nothing, a step adds several numbers by halves first. On GPUs, so do sums of partial results.

Static sums of one block keep their loops on a CPU. Products keep theirs, since their error is the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.nest import (
    Nest,
    Values,
    copy_loops,
    if_in_bounds,
    map_sums,
    substitute,
    uses,
    uses_any,
    volume_of,
)
from meta.backend.tvm.te.exact import add, exact

Expr = Any
Stmt = Any

_BLOCK: Final = 32
"""Additions to an element in a block. torch adds 16 to 64 before the next level of its cascade."""
_CONTRACTION_BLOCK: Final = 512
"""Additions to an element in a block of a contraction, whose accumulators take most registers."""
_WIDTH: Final = 4
"""Cheap numbers that are added by halves before they are added to the sum: fewer additions wait for each other, and
fewer rounding errors add up."""
_REGISTER_WIDTH: Final = 2
"""The same for long sums in several registers, where additions do not wait, and numbers read in order are faster."""
_COLUMN_WIDTH: Final = 8
"""The same for sums of columns on a CPU, which are in memory."""
_COLUMN_BLOCK: Final = 128
"""Additions to such a sum in a block. LLVM unrolls shorter loops over columns, which takes it long."""
_FEW_ADDITIONS: Final = 8
"""Additions of partial results, at most, that a GPU's thread makes one after the other."""
_REGISTER_ELEMENTS: Final = 16
"""Elements of a serial loop, at most, that stay in registers, as those of vectorised and unrolled loops do."""
_FEW_BLOCKS: Final = 8
"""Blocks up to which their sums are added without the rounding errors, which are then those of few additions."""


def block_sums(func: Any) -> Any:
    """`func`, scheduled for a CPU, with its floating sums in blocks, and its sums of vector lanes by halves."""
    return map_sums(func, _rewrite_sum)


def block_sums_of_threads(func: Any) -> Any:
    """`func`, scheduled for a GPU, with the floating sums of each thread in blocks.

    Reductions that threads share are lowered first to the sum of each thread, which is a loop, and an exchange; TVM
    would do so later."""
    lower = tvm.s_tir.transform.LowerCrossThreadReduction()
    return map_sums(lower(tvm.IRModule({"main": func}))["main"], lambda nest: _rewrite_sum(nest, "local"))


def _rewrite_sum(nest: Nest, scope: str = "") -> Stmt | None:
    """The nest in blocks, or by halves of lanes, as an opaque block; None if it stays as it is.

    scope: where the sums of blocks are stored; on a CPU, TVM chooses."""
    length = _CONTRACTION_BLOCK if _is_contraction(nest) else _BLOCK
    if nest.is_long(length) or (bool(scope) and _adds_partial_results(nest)):
        body, buffers = _divide(nest, length, scope)
    elif not scope and _sums_lanes(nest):
        body, buffers = _halve(nest), []
    else:
        return None
    return tvm.SBlockRealize([], True, tvm.SBlock([], [], [], "block_sums", body, None, buffers))


def _divide(nest: Nest, length: int, scope: str) -> tuple[Stmt, list[Any]]:
    """The nest in blocks, and the buffers that it needs.

    The loop that is divided into blocks is the innermost one that, with the loops inside it, makes a long sum."""
    position = len(nest.steps) - 1
    while position and not replace(nest, steps=nest.steps[position:]).is_long(length):
        position -= 1
    if position:
        length //= 2  # the rest of the divided loop and the next blocks may add to one sum
    divided, within = nest.steps[position], nest.steps[position + 1 :]
    additions = (volume_of(within) or 1) * nest.inner_additions
    unchecked = [c for c in nest.conditions if not _fails_in_last_step_only(c, divided, [*within, *nest.inner])]
    extent = blocks.as_int(divided.extent)
    has_columns = not scope and length == _BLOCK and _has_columns(nest)
    is_wide = (
        length % (_WIDTH * additions) == 0
        and (bool(scope) or not uses(unchecked, divided.loop_var))
        and _adds_widely(nest.store.value.b, has_columns)
    )
    has_columns = has_columns and is_wide
    steps_per_block = max((_COLUMN_BLOCK if has_columns else length) // additions, 1)
    few = position == 0 and isinstance(extent, int) and (extent - 1) // steps_per_block <= _FEW_BLOCKS
    if has_columns:
        width = _COLUMN_WIDTH
    elif is_wide:
        width = _WIDTH if few or not _has_registers(nest) else _REGISTER_WIDTH
    else:
        width = 1
        if few and length == _BLOCK:  # blocks without lost digits cost little
            steps_per_block = max(steps_per_block // 2, 1)
    dtype = str(divided.loop_var.ty.dtype)
    zero, one, size = (tvm.tirx.const(n, dtype) for n in (0, 1, steps_per_block))
    sums = _BlockSums(nest, scope, compensated=not few, nested=position > 0)

    def steps(
        first: Expr, count: Expr, values: Values, conditions: list[Expr], width: int, annotations: Any = None
    ) -> Stmt:
        """`count` times `width` steps of the divided loop, from `first` on."""
        step = tvm.Var("step", dtype)
        starts = [first + step * width + n for n in range(width)]

        def addition(v: Values) -> Stmt:
            values = [{**v, divided.loop_var: start} for start in starts]
            store = substitute(nest.store, values[0])
            if width == 1:
                return if_in_bounds(conditions, values[0], store)
            of_step = [c for c in conditions if uses([c], divided.loop_var)]
            numbers = [
                _number_in_bounds(substitute(nest.store.value.b, position), of_step, position) for position in values
            ]
            store = tvm.BufferStore(store.buffer, tvm.tirx.Add(store.value.a, _tree(numbers)), store.indices)
            return if_in_bounds([c for c in conditions if not uses([c], divided.loop_var)], values[0], store)

        return tvm.For(
            step, zero, count, divided.kind, copy_loops([*within, *nest.inner], values, addition), None, annotations
        )

    def count_full(values: Values) -> Expr:
        """The number of blocks but the last."""
        if isinstance(extent, int):
            return tvm.tirx.const(max(extent - 1, 0) // steps_per_block, dtype)
        return tvm.tirx.floordiv(tvm.tirx.Max(substitute(divided.extent, values) - one, zero), size)

    def blocks_and_rest(values: Values) -> Stmt:
        full, block = count_full(values), tvm.Var("block", dtype)
        done = full * size
        rest = substitute(divided.extent, values) - done
        in_block = steps(block * size, tvm.tirx.floordiv(size, tvm.tirx.const(width, dtype)), values, unchecked, width)
        body = tvm.SeqStmt([in_block, sums.flush(values, tvm.tirx.EQ(block, zero))])
        statements = [tvm.For(block, zero, full, tvm.tirx.ForKind.SERIAL, body)]
        if width > 1 and len(unchecked) == len(nest.conditions):
            # The numbers that fill no step come first: their rounding errors are those of small sums.
            single = tvm.tirx.floormod(rest, tvm.tirx.const(width, dtype))
            statements.append(steps(done, single, values, unchecked, 1))
            done, left, last_width = done + single, tvm.tirx.floordiv(rest, tvm.tirx.const(width, dtype)), width
        elif width > 1:
            wide = tvm.tirx.floordiv(tvm.tirx.Max(rest - one, zero), tvm.tirx.const(width, dtype))
            statements.append(steps(done, wide, values, unchecked, width))
            done, left, last_width = done + wide * width, rest - wide * width, 1
        else:
            left, last_width = rest, 1
        statements.append(steps(done, left, values, nest.conditions, last_width, divided.annotations))
        return tvm.SeqStmt([*statements, *sums.count(rest * additions, length, values)])

    body = copy_loops(nest.steps[:position], {}, blocks_and_rest)
    finish = sums.finish(tvm.tirx.GT(count_full({}), zero) if position == 0 else None)
    return tvm.SeqStmt([*sums.start(), body, finish]), sums.buffers


class _BlockSums:
    """The sums of the blocks of a nest, and the statements that update them.

    Attributes:
        nest: the nest.
        compensated: whether `low` keeps what the roundings of `high` lose.
        nested: whether the divided loop is inside another one. Then state[0] is 1 after the first block, and state[1]
            the number of additions since the last block.
        high, low, state: buffers.
    """

    def __init__(self, nest: Nest, scope: str, compensated: bool, nested: bool) -> None:
        self.nest, self.compensated, self.nested = nest, compensated, nested
        dtype = str(nest.store.buffer.dtype)
        extents = [loop.extent for loop in nest.elements] or [tvm.tirx.const(1, "int64")]
        self.high, self.low = (tvm.tirx.decl_buffer(extents, dtype, name, scope=scope) for name in ("high", "low"))
        self.state = tvm.tirx.decl_buffer([2], "int64", "state", scope=scope)

    @property
    def buffers(self) -> list[Any]:
        return [self.high, *[self.low] * self.compensated, *[self.state] * self.nested]

    def start(self) -> list[Stmt]:
        """Statements before the nest."""
        return [self._set_state(0, 0), self._set_state(1, 0)] if self.nested else []

    def flush(self, values: Values, is_first: Expr) -> Stmt:
        """Add the sum of a block to `high` and `low`, and reset it. is_first: whether it is the first block, if the
        divided loop is not nested."""
        if self.nested:
            is_first = tvm.tirx.EQ(self.state[0], tvm.tirx.const(0, "int64"))

        def element(total: Any, index: list[Expr], position: list[Expr]) -> Stmt:
            zero, block = tvm.tirx.const(0, str(total.dtype)), total[tuple(index)]
            high, low = (tvm.tirx.Select(is_first, zero, buffer[tuple(position)]) for buffer in (self.high, self.low))
            rounded = high + block
            stores = [tvm.BufferStore(self.high, rounded, position), tvm.BufferStore(total, zero, index)]
            if not self.compensated:
                return tvm.SeqStmt(stores)
            added = rounded - high
            lost = (high - (rounded - added)) + (block - added)
            # `low` goes back into `high` at once, with `total` as the register: it would grow with the number of
            # blocks, and so would its own rounding errors.
            high, low = self.high[tuple(position)], self.low[tuple(position)]
            return tvm.SeqStmt([
                tvm.BufferStore(self.low, tvm.tirx.Select(is_first, zero, low) + lost, position),
                tvm.BufferStore(self.high, rounded, position),
                tvm.BufferStore(total, tvm.tirx.Select(tvm.tirx.isnan(low), high, high + low), index),
                tvm.BufferStore(self.low, low - (block - high), position),
                tvm.BufferStore(self.high, block, position),
                tvm.BufferStore(total, zero, index),
            ])  # fmt: skip

        statement = self._over_elements(element, values)
        return tvm.SeqStmt([statement, self._set_state(0, 1), self._set_state(1, 0)]) if self.nested else statement

    def count(self, additions: Expr, length: int, values: Values) -> list[Stmt]:
        """Statements that count pending additions, which end a block if they are `length` or more."""
        if not self.nested:
            return []
        counted = tvm.BufferStore(self.state, self.state[1] + additions.astype("int64"), [1])
        is_full = tvm.tirx.GE(self.state[1], tvm.tirx.const(length, "int64"))
        return [counted, tvm.tirx.IfThenElse(is_full, self.flush(values, is_full), None)]

    def finish(self, has_blocks: Expr | None) -> Stmt:
        """Store the total, if there was a block before the last one; `has_blocks` tells if the loop is not nested.

        `low` is NaN after an overflow, and is left out then."""
        if has_blocks is None:
            has_blocks = tvm.tirx.NE(self.state[0], tvm.tirx.const(0, "int64"))

        def element(total: Any, index: list[Expr], position: list[Expr]) -> Stmt:
            rest = total[tuple(index)]
            if self.compensated:
                low = self.low[tuple(position)]
                rest = tvm.tirx.Select(tvm.tirx.isnan(low), tvm.tirx.const(0, str(total.dtype)), low) + rest
            return tvm.BufferStore(total, self.high[tuple(position)] + rest, index)

        return tvm.tirx.IfThenElse(has_blocks, self._over_elements(element, {}), None)

    def _set_state(self, index: int, value: int) -> Stmt:
        return tvm.BufferStore(self.state, tvm.tirx.const(value, "int64"), [index])

    def _over_elements(self, element: Callable[[Any, list[Expr], list[Expr]], Stmt], values: Values) -> Stmt:
        """`element(sum, index into it, index into high and low)` for each element of the sum."""
        loops, store = self.nest.elements, self.nest.store
        outer_conditions = [c for c in self.nest.conditions if not uses_any([c], self.nest.step_variables)]

        def statement(v: Values) -> Stmt:
            index = [substitute(i, v) for i in store.indices]
            position = [v[loop.loop_var] for loop in loops] or [0]
            return if_in_bounds(outer_conditions, v, element(store.buffer, index, position))

        return exact(copy_loops(loops, values, statement))


def _is_contraction(nest: Nest) -> bool:
    """Whether the sum is of products of two operands, of which one only moves with some element of the sum."""
    product = nest.store.value.b
    if not isinstance(product, tvm.tirx.Mul):
        return False
    variables = [loop.loop_var for loop in nest.elements if blocks.as_int(loop.extent) != 1]
    return any(uses([product.a], v) != uses([product.b], v) for v in variables)


def _sums_lanes(nest: Nest) -> bool:
    """Whether the sum is that of vector lanes, a power of two of them, that nothing else reads."""
    lanes = volume_of(nest.steps) or 0
    is_power = lanes >= 4 and lanes & (lanes - 1) == 0
    return nest.sums_lanes and is_power and len(nest.steps) == 1 and volume_of(nest.inner) == 1 and not nest.conditions


def _halve(nest: Nest) -> Stmt:
    """The sum of lanes in vectors: the second half is added to the first until one lane is left.

    The error is that of log2(lanes) additions. The lanes are overwritten."""
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
    """Whether the sum is one of several numbers, in a single loop, as that of the partial results of threads."""
    return len(nest.steps) == 1 and nest.inner_additions == 1 and nest.is_long(_FEW_ADDITIONS)


def _adds_widely(number: Expr, in_memory: bool) -> bool:
    """Whether several steps of the divided loop can be one: their numbers take little code, and are no products, which
    LLVM fuses with their addition. For sums in memory, fewer stores of the sum are faster than that."""
    return (in_memory or not isinstance(number, tvm.tirx.Mul)) and not blocks.calls_expensive(number)


def _number_in_bounds(number: Expr, conditions: Sequence[Expr], values: Values) -> Expr:
    """The number where all conditions hold, else 0. They are no `likely` conditions: TVM would divide the loops by them
    again, for each number of a step, into parts that read out of bounds."""
    for condition in conditions:
        zero = tvm.tirx.const(0, str(number.ty.dtype))
        number = tvm.tirx.if_then_else(substitute(condition, values), number, zero)
    return number


def _has_registers(nest: Nest) -> bool:
    """Whether the sum is in several registers."""
    return any(loop.kind == tvm.tirx.ForKind.UNROLLED for loop in nest.elements)


def _has_columns(nest: Nest) -> bool:
    """Whether the sum has more elements than registers hold."""
    serial = [loop for loop in nest.elements if loop.kind == tvm.tirx.ForKind.SERIAL]
    elements = volume_of(serial)
    return elements is None or elements > _REGISTER_ELEMENTS


def _tree(numbers: Sequence[Expr]) -> Expr:
    """The sum of a power of two of numbers, by halves."""
    if len(numbers) == 1:
        return numbers[0]
    half = len(numbers) // 2
    return add(_tree(numbers[:half]), _tree(numbers[half:]))


def _fails_in_last_step_only(condition: Expr, divided: Any, inner: Sequence[Any]) -> bool:
    """Whether a bounds check holds in all steps of the divided loop but the last.

    It does if it comes from the division of a longer loop into `divided` and some of `inner`, as
    `step * 16 + lane < n`: the first element of a step is not before the last element of the step before."""
    if not isinstance(condition, tvm.tirx.LT) or uses([condition.b], divided.loop_var):
        return False
    analyzer, step = tvm.Analyzer(), divided.loop_var
    first, last = dict[Any, Expr](), dict[Any, Expr]()
    for loop in inner:
        if uses([condition], loop.loop_var):
            first[loop.loop_var], last[loop.loop_var] = loop.min, loop.extent - 1
    one = tvm.tirx.const(1, str(step.ty.dtype))
    next_step = substitute(condition.a, {**first, step: step + one})
    final = substitute(condition.a, {**first, step: divided.extent - one})
    return bool(
        uses([condition.a], step)
        and analyzer.can_prove(next_step > substitute(condition.a, last))
        and analyzer.can_prove(tvm.tirx.LT(final, condition.b))
    )
