"""A sum in blocks: the loop that is divided, the steps of a block, and the numbers that a step adds at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.nest import (
    Nest,
    Values,
    copy_loops,
    if_in_bounds,
    substitute,
    uses,
    uses_any,
    volume_of,
)
from meta.backend.tvm.workarounds.exact import add, exact
from meta.records import record

Expr = Any
Stmt = Any


def divide(nest: Nest, length: int, scope: str) -> tuple[Stmt, list[Any]]:
    """The nest in blocks of `length` additions, and the buffers that it needs.

    The loop that is divided into blocks is the innermost one that, with the loops inside it, makes a long sum."""
    position = len(nest.steps) - 1
    while position and not replace(nest, steps=nest.steps[position:]).is_long(length):
        position -= 1
    if position:
        length //= 2  # the rest of the divided loop and the next blocks may add to one sum
    division = _division(nest, position, length, scope)
    return division.statement(), division.sums.buffers


def _division(nest: Nest, position: int, length: int, scope: str) -> _Division:
    """How the loop at `position` of the nest's steps is divided."""
    divided, within = nest.steps[position], nest.steps[position + 1 :]
    additions = (volume_of(within) or 1) * nest.inner_additions
    conditions = [c for c in nest.conditions if not _fails_in_last_step_only(c, divided, [*within, *nest.inner])]
    has_columns = not scope and length == limits.SUM_BLOCK and _has_columns(nest)
    is_wide = (
        length % (limits.SUM_WIDTH * additions) == 0
        and (bool(scope) or not uses(conditions, divided.loop_var))
        and _adds_widely(nest.store.value.b, has_columns)
    )
    has_columns = has_columns and is_wide
    steps = max((limits.SUM_COLUMN_BLOCK if has_columns else length) // additions, 1)
    extent = blocks.as_int(divided.extent)
    is_short = position == 0 and isinstance(extent, int) and (extent - 1) // steps <= limits.SUM_FEW_BLOCKS
    if is_short and length == limits.SUM_BLOCK and not is_wide:  # blocks without lost digits cost little
        steps = max(steps // 2, 1)
    width = limits.SUM_REGISTER_WIDTH if not is_short and _has_registers(nest) else limits.SUM_WIDTH
    return _Division(
        nest, position, length, additions, conditions, steps,
        width=limits.SUM_COLUMN_WIDTH if has_columns else width if is_wide else 1,
        sums=_BlockSums(nest, scope, compensated=not is_short, nested=position > 0),
    )  # fmt: skip


@record
class _Division:
    """A nest with one of its loops divided into blocks.

    Attributes:
        nest: the nest.
        position: index of the divided loop among the steps of the nest.
        length: additions to an element that end a block.
        additions: additions in one step of the divided loop.
        conditions: the bounds checks of all blocks but the last.
        steps_per_block: steps of the divided loop in a block.
        width: numbers of so many steps are added to each other first.
        sums: the sums of blocks.
    """

    nest: Nest
    position: int
    length: int
    additions: int
    conditions: list[Expr]
    steps_per_block: int
    width: int
    sums: _BlockSums

    @property
    def divided(self) -> Any:
        """The loop that is divided."""
        return self.nest.steps[self.position]

    def statement(self) -> Stmt:
        body = copy_loops(self.nest.steps[: self.position], {}, self._all_blocks)
        has_blocks = None if self.position else tvm.tirx.GT(self._count_full_blocks({}), self._constant(0))
        return tvm.SeqStmt([*self.sums.start(), body, self.sums.finish(has_blocks)])

    def _constant(self, number: int) -> Expr:
        """A number in the dtype of the divided loop."""
        return tvm.tirx.const(number, str(self.divided.loop_var.ty.dtype))

    def _count_full_blocks(self, values: Values) -> Expr:
        """The number of blocks but the last."""
        extent = blocks.as_int(self.divided.extent)
        if isinstance(extent, int):
            return self._constant(max(extent - 1, 0) // self.steps_per_block)
        before_last = tvm.tirx.Max(substitute(self.divided.extent, values) - self._constant(1), self._constant(0))
        return tvm.tirx.floordiv(before_last, self._constant(self.steps_per_block))

    def _all_blocks(self, values: Values) -> Stmt:
        full, block = self._count_full_blocks(values), tvm.Var("block", str(self.divided.loop_var.ty.dtype))
        size, zero = self._constant(self.steps_per_block), self._constant(0)
        done = full * size
        rest = substitute(self.divided.extent, values) - done
        count = tvm.tirx.floordiv(size, self._constant(self.width))
        in_block = self._steps(block * size, count, values, self.conditions, self.width)
        body = tvm.SeqStmt([in_block, self.sums.flush(values, tvm.tirx.EQ(block, zero))])
        return tvm.SeqStmt([
            tvm.For(block, zero, full, tvm.tirx.ForKind.SERIAL, body),
            *self._last_block(done, rest, values),
            *self.sums.count(rest * self.additions, self.length, values),
        ])  # fmt: skip

    def _last_block(self, done: Expr, rest: Expr, values: Values) -> list[Stmt]:
        """The `rest` steps after `done` of them."""
        annotations, checks = self.divided.annotations, self.nest.conditions
        if self.width == 1:
            return [self._steps(done, rest, values, checks, 1, annotations)]
        width = self._constant(self.width)
        if len(self.conditions) == len(checks):
            # The numbers that fill no step come first, while the sum is small and rounding errors are as well.
            single = tvm.tirx.floormod(rest, width)
            wide = tvm.tirx.floordiv(rest, width)
            return [
                self._steps(done, single, values, self.conditions, 1),
                self._steps(done + single, wide, values, checks, self.width, annotations),
            ]
        wide = tvm.tirx.floordiv(tvm.tirx.Max(rest - self._constant(1), self._constant(0)), width)
        return [
            self._steps(done, wide, values, self.conditions, self.width),
            self._steps(done + wide * self.width, rest - wide * self.width, values, checks, 1, annotations),
        ]

    def _steps(
        self, first: Expr, count: Expr, values: Values, conditions: list[Expr], width: int, annotations: Any = None
    ) -> Stmt:
        """`count` times `width` steps of the divided loop, from `first` on."""
        step = tvm.Var("step", str(self.divided.loop_var.ty.dtype))
        starts = [first + step * width + n for n in range(width)]
        inner = [*self.nest.steps[self.position + 1 :], *self.nest.inner]
        body = copy_loops(inner, values, lambda v: self._addition(starts, conditions, v))
        return tvm.For(step, self._constant(0), count, self.divided.kind, body, None, annotations)

    def _addition(self, starts: Sequence[Expr], conditions: list[Expr], values: Values) -> Stmt:
        """The addition of the numbers of the steps at `starts`, by halves."""
        store, variable = self.nest.store, self.divided.loop_var
        positions = [{**values, variable: start} for start in starts]
        first = substitute(store, positions[0])
        if len(starts) == 1:
            return if_in_bounds(conditions, positions[0], first)
        of_step = [c for c in conditions if uses([c], variable)]
        numbers = [_number_in_bounds(substitute(store.value.b, each), of_step, each) for each in positions]
        total = tvm.BufferStore(first.buffer, tvm.tirx.Add(first.value.a, _tree(numbers)), first.indices)
        return if_in_bounds([c for c in conditions if not uses([c], variable)], positions[0], total)


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
                tvm.BufferStore(total, tvm.tirx.Select(_is_number(low), high + low, high), index),
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
                rest = tvm.tirx.Select(_is_number(low), low, tvm.tirx.const(0, str(total.dtype))) + rest
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


def _is_number(x: Expr) -> Expr:
    """Whether x is not NaN, as a comparison: TVM does not vectorise calls of isnan, and its NE is false for NaN."""
    return tvm.tirx.EQ(x, x)


def _adds_widely(number: Expr, in_memory: bool) -> bool:
    """Whether several steps of the divided loop can be one: their numbers take little code, and are not products, which
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
    return elements is None or elements > limits.SUM_REGISTER_ELEMENTS


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
