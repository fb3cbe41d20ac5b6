"""The kernel that sums the columns of each part of the rows.

A block of threads has some rows, its part, and some columns. A thread loads 16 bytes of several rows at once and adds
them in registers; then the sums of all threads of a column are added.

Squares about a mean need no second read. Let s be the sum of n numbers x, and q the sum of (x - s/n)^2. The sum of
(x - m)^2 is q + n (s/n - m)^2 for every m, and two sets of numbers have together

    s = s1 + s2    q = q1 + q2 + n1 n2 / (n1 + n2) (s1/n1 - s2/n2)^2

(T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979). The
numbers that a thread loads at once are the first sets, so that no large numbers cancel, whatever the mean is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.gpu.column_group import ColumnGroup, ColumnSum, same_load
from meta.backend.tvm.schedule.gpu.loops import (
    allocating,
    guarded,
    local,
    numbers_for,
    sequence,
    serial_loop,
    shared,
    store,
    sum_into,
    thread_loop,
    tree_sum,
    unrolled_loop,
    vector_loop,
    zero_of,
)
from meta.backend.tvm.schedule.nest import substitute

Expr = Any
Stmt = Any


def sum_parts(group: ColumnGroup, parts: Sequence[Any]) -> Stmt:
    """The kernel that stores the sums of each part as `parts[i][part, column]`; squares are those about the mean of the
    part."""
    part, block = group.var("part"), group.var("column_block")
    shape = [group.int(n) for n in (group.lanes, group.row_threads, group.column_threads)]
    of_threads = [shared("of_threads", shape, s.dtype) for s in group.sums]
    phases = [_add_rows(group, of_threads, part, block), _add_threads(group, of_threads, parts, part, block)]
    block_columns = group.lanes * group.column_threads
    column_blocks = tvm.tirx.floordiv(group.columns + (block_columns - 1), group.int(block_columns))
    body = allocating(sequence(phases), of_threads, "part")
    return thread_loop(part, "blockIdx.y", group.parts, thread_loop(block, "blockIdx.x", column_blocks, body))


def over_threads(group: ColumnGroup, rows: int, columns: int, body: Callable[[Any, Any], Stmt]) -> Stmt:
    """`body(y, x)` in each thread of a block."""
    y, x = group.var("y"), group.var("x")
    return thread_loop(y, "threadIdx.y", group.int(rows), thread_loop(x, "threadIdx.x", group.int(columns), body(y, x)))


def at_least_one(count: Expr, dtype: str) -> Expr:
    """A count as a divisor."""
    return tvm.tirx.Max(count, tvm.tirx.const(1, str(count.ty.dtype))).astype(dtype)


def squares_about(mean: Expr, squares: Expr, total: Expr, count: Expr) -> Expr:
    """The sum of squares about `mean` of `count` numbers with the sum `total`, from those about their own mean."""
    dtype = str(squares.ty.dtype)
    apart = total / at_least_one(count, dtype) - mean
    return squares + apart * apart * tvm.tirx.Max(count, tvm.tirx.const(0, str(count.ty.dtype))).astype(dtype)


def in_order(sums: Sequence[ColumnSum]) -> list[int]:
    """The positions of the sums, those that depend on another sum last."""
    return sorted(range(len(sums)), key=lambda i: sums[i].mean is not None)


def _add_rows(group: ColumnGroup, of_threads: Sequence[Any], part: Any, block: tvm.Expr) -> Stmt:
    """Each thread adds its rows of the part."""
    threads, step_rows = group.row_threads, group.step_rows
    rows = group.rows_of(part)
    full = tvm.tirx.floordiv(rows, group.int(group.step))
    is_full = group.static_rows is not None and group.static_rows % group.step == 0

    def body(y: tvm.Expr, x: tvm.Expr) -> Stmt:
        thread = _Thread(group)
        column = (block * group.column_threads + x) * group.lanes
        first = part * group.part_rows
        step, rest, lane = group.var("step"), group.var("rest"), group.var("lane")
        of_step = [first + (step * step_rows + n) * threads + y for n in range(step_rows)]
        row = full * group.step + rest * threads + y
        last = tvm.tirx.IfThenElse(row < rows, thread.add([first + row], column), None)
        results = [store(b, thread.sum(i, lane), lane, y, x) for i, b in enumerate(of_threads)]
        statements = [
            thread.start(column),
            serial_loop(step, full, thread.add(of_step, column)),
            *([] if is_full else [serial_loop(rest, group.int(step_rows), last)]),
            unrolled_loop(lane, group.int(group.lanes), sequence(results)),
        ]
        return allocating(guarded(column < group.columns, sequence(statements)), thread.buffers, "rows")

    return over_threads(group, threads, group.column_threads, body)


def _add_threads(
    group: ColumnGroup, of_threads: Sequence[Any], parts: Sequence[Any], part: Any, block: tvm.Expr
) -> Stmt:
    """One thread for each column adds the sums of the threads."""
    rows, threads = group.rows_of(part), group.row_threads

    def body(y: tvm.Expr, x: tvm.Expr) -> Stmt:
        column = (block * group.column_threads + x) * group.lanes + y
        totals = [local("total", 1, s.dtype) for s in group.sums]
        numbers = [numbers_for(threads, s.dtype) for s in group.sums]
        means = [local("mean", 1, s.dtype) for s in group.sums if s.mean is not None]
        statements, unset_means = list[Stmt](), iter(means)
        for i in in_order(group.sums):
            each = group.sums[i]
            if each.mean is None:
                number = _thread_sum(of_threads[i], y, x)
            else:
                mean = next(unset_means)
                statements.append(store(mean, totals[each.total][0] / at_least_one(rows, each.dtype)))
                number = _thread_squares(group, rows, mean, of_threads[i], of_threads[each.total], y, x)
            statements.append(sum_into(totals[i], numbers[i], group.int(threads), number))
            statements.append(store(parts[i], totals[i][0], part, column))
        added = guarded(column < group.columns, sequence(statements))
        return allocating(guarded(y < group.int(group.lanes), added), [*totals, *numbers, *means], "columns")

    return over_threads(group, threads, group.column_threads, body)


def _thread_sum(of_threads: Any, lane: Expr, column: Expr) -> Callable[[Expr], Expr]:
    return lambda thread: of_threads[lane, thread, column]


def _thread_squares(
    group: ColumnGroup, rows: Expr, mean: Any, squares: Any, totals: Any, lane: Expr, column: Expr
) -> Callable[[Expr], Expr]:
    """The squares of a thread about the mean of the part."""

    def number(thread: Expr) -> Expr:
        threads = group.row_threads
        count = tvm.tirx.floordiv(rows - thread + (threads - 1), group.int(threads))
        return squares_about(mean[0], squares[lane, thread, column], totals[lane, thread, column], count)

    return number


class _Thread:
    """A thread that adds its rows.

    Attributes:
        loaded, kept: the elements of `group.loads` and `group.kept`.
        high, low: the sums of each lane, in two numbers if the group is compensated. Squares are those about the mean
            of the thread's rows.
        numbers, step_sums: what is added for each row, and the sum of that.
        counts: for each dtype of squares, the rows so far, 1 / that, and the weight of the next rows against those.
    """

    def __init__(self, group: ColumnGroup) -> None:
        self.group = group
        lanes, rows = group.lanes, group.step_rows
        self.loaded = [local("loaded", lanes * rows, str(x.source.dtype)) for x in group.loads]
        self.kept = [local("kept", lanes, str(x.source.dtype)) for x in group.kept]
        self.high = [local("high", lanes, s.dtype) for s in group.sums]
        self.low = [local("low", lanes, s.dtype) for s in group.sums] if group.is_compensated else []
        self.numbers = [local("numbers", rows, s.dtype) for s in group.sums]
        self.step_sums = [local("step_sum", 1, s.dtype) for s in group.sums]
        self.counts = {s.dtype: local("count", 3, s.dtype) for s in group.sums if s.mean is not None}

    @property
    def buffers(self) -> list[Any]:
        sums = [*self.high, *self.low, *self.numbers, *self.step_sums]
        return [*self.loaded, *self.kept, *sums, *self.counts.values()]

    def start(self, column: Expr) -> Stmt:
        lane = self.group.var("lane")
        values = self.group.values(None, column, lane)
        zeros = [store(b, zero_of(b), lane) for b in (*self.high, *self.low)]
        stores = [store(b, substitute(x, values), lane) for b, x in zip(self.kept, self.group.kept, strict=True)]
        counts = [store(b, zero_of(b)) for b in self.counts.values()]
        return sequence([self._over_lanes(lane, [*zeros, *stores]), *counts])

    def _over_lanes(self, lane: tvm.Var, body: Sequence[Stmt]) -> Stmt:
        return unrolled_loop(lane, self.group.int(self.group.lanes), sequence(body))

    def add(self, rows: Sequence[Expr], column: Expr) -> Stmt:
        """Add the elements of these rows."""
        loads = [self._load(x, n, row, column) for n, row in enumerate(rows) for x in range(len(self.loaded))]
        weights = [self._weigh(b, len(rows)) for b in self.counts.values()]
        lane = self.group.var("lane")
        added = self._over_lanes(lane, self._add_lane(rows, column, lane))
        counts = [store(b, b[0] + tvm.tirx.const(len(rows), str(b.dtype))) for b in self.counts.values()]
        return sequence([*loads, *weights, added, *counts])

    def _load(self, i: int, position: int, row: Expr, column: Expr) -> Stmt:
        lane = self.group.var("lane")
        element = substitute(self.group.loads[i], self.group.values(row, column, lane))
        loaded = store(self.loaded[i], element, lane + position * self.group.lanes)
        return vector_loop(lane, self.group.int(self.group.lanes), loaded)

    @staticmethod
    def _weigh(count: Any, rows: int) -> Stmt:
        one, new = (tvm.tirx.const(n, str(count.dtype)) for n in (1, rows))
        inverse = store(count, one / tvm.tirx.Max(count[0], one), 1)
        return sequence([inverse, store(count, count[0] * new / (count[0] + new), 2)])

    def _add_lane(self, rows: Sequence[Expr], column: Expr, lane: Expr) -> list[Stmt]:
        """Add the elements of a lane's column."""
        statements = list[Stmt]()
        for i in in_order(self.group.sums):
            each, numbers = self.group.sums[i], self.numbers[i]
            if each.mean is None:
                values = [self._number(each.number, n, row, column, lane) for n, row in enumerate(rows)]
                statements.extend(store(numbers, x, n) for n, x in enumerate(values))
                step_sum = tree_sum([numbers[n] for n in range(len(rows))])
            else:
                step_sum = self._squares(each, len(rows), lane)
            statements.append(store(self.step_sums[i], step_sum))
        for i in range(len(self.group.sums)):
            statements.extend(self._accumulate(i, lane))
        return statements

    def _squares(self, each: ColumnSum, rows: int, lane: Expr) -> Expr:
        """The squares about the mean of the thread's rows that the rows add."""
        count = self.counts[each.dtype]
        mean = self.step_sums[each.total][0] * tvm.tirx.const(1 / rows, each.dtype)
        apart = mean - self.sum(each.total, lane) * count[1]
        between = apart * apart * count[2]
        if rows == 1:
            return between
        differences = [self.numbers[each.total][n] - mean for n in range(rows)]
        return tree_sum([d * d for d in differences]) + between

    def _number(self, number: Expr, position: int, row: Expr, column: Expr, lane: Expr) -> Expr:
        """The summand of a row, with the elements in registers in place of their loads."""

        def in_registers(load: tvm.TensorLoad) -> Any:
            for x, buffer in zip(self.group.loads, self.loaded, strict=True):
                if same_load(load, x):
                    return buffer[lane + position * self.group.lanes]
            for x, buffer in zip(self.group.kept, self.kept, strict=True):
                if same_load(load, x):
                    return buffer[lane]
            return load

        replaced = tvm.structural_map(number, (tvm.TensorLoad, in_registers))
        return substitute(replaced, self.group.values(row, column, lane))

    def _accumulate(self, i: int, lane: Expr) -> list[Stmt]:
        """Add the sum of a step: as in `schedule.summation`, `low` holds the digits that the roundings of `high`
        lose."""
        high, number = self.high[i], self.step_sums[i][0]
        if not self.low:
            return [store(high, high[lane] + number, lane)]
        low, rounded = self.low[i], self.numbers[i]  # the numbers are added
        added = rounded[0] - high[lane]
        lost = (high[lane] - (rounded[0] - added)) + (number - added)
        return [
            store(rounded, high[lane] + number, 0),
            store(low, low[lane] + lost, lane),
            store(high, rounded[0], lane),
        ]

    def sum(self, i: int, lane: Expr) -> Expr:
        """The sum of a lane; `low` is NaN after an overflow, and is left out then."""
        high = self.high[i][lane]
        if not self.low:
            return high
        low = self.low[i][lane]
        return tvm.tirx.Select(tvm.tirx.isnan(low), high, high + low)
