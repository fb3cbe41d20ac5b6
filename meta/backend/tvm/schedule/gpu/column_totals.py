"""The kernel that adds the parts of each column, and computes what follows from its sums.

A block of 1024 threads has 8 columns, the elements of one memory transaction of float32: columns are few, and with
so many threads the loads of all parts are in flight at once. Sums that depend on others, as squares about their mean,
follow when those are known to all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import MAX_THREADS
from meta.backend.tvm.schedule.gpu.column_group import ColumnGroup
from meta.backend.tvm.schedule.gpu.column_parts import over_threads, squares_about
from meta.backend.tvm.schedule.gpu.loops import (
    allocating,
    guarded,
    local,
    numbers_for,
    sequence,
    shared,
    store,
    sum_into,
    thread_loop,
    zero_of,
)
from meta.backend.tvm.schedule.nest import substitute

Expr = Any
Stmt = Any

_COLUMNS: Final = 8
_PART_THREADS: Final = MAX_THREADS // _COLUMNS
"""Threads that add the parts of a column."""


def add_parts(group: ColumnGroup, parts: Sequence[Any], stored: Sequence[bool], stores: Sequence[Any]) -> Stmt:
    """The kernel.

    stored: whether memory needs each of the sums.  stores: what follows from the sums of a column, in the variables of
    the group."""
    kernel = _Kernel(group, parts, stored)
    phases = list[Stmt]()
    plain = [i for i, s in enumerate(group.sums) if s.mean is None]
    squares = [i for i, s in enumerate(group.sums) if s.mean is not None]
    for positions in (plain, squares):
        phases.extend([kernel.add_parts(positions), kernel.add_threads(positions)] if positions else [])
    phases.extend([kernel.store_results(stores)] if stores else [])
    blocks = tvm.tirx.floordiv(group.columns + (_COLUMNS - 1), group.int(_COLUMNS))
    body = allocating(sequence(phases), [*kernel.totals, *kernel.of_threads], "totals")
    return thread_loop(kernel.block, "blockIdx.x", blocks, body)


class _Kernel:
    """totals: the sums of the block's columns.  of_threads: the sums of each thread."""

    def __init__(self, group: ColumnGroup, parts: Sequence[Any], stored: Sequence[bool]) -> None:
        self.group, self.parts, self.stored = group, parts, stored
        self.block = group.var("column_block")
        columns, threads = group.int(_COLUMNS), group.int(_PART_THREADS)
        self.totals = [shared("total", [columns], s.dtype) for s in group.sums]
        self.of_threads = [shared("of_threads", [threads, columns], s.dtype) for s in group.sums]

    def column(self, x: tvm.Expr) -> Expr:
        return self.block * _COLUMNS + x

    def add_parts(self, positions: Sequence[int]) -> Stmt:
        """Each thread adds every `_PART_THREADS`-th part."""
        loads = 8  # Parts that a thread loads at once.
        group, width = self.group, _PART_THREADS * loads
        count = tvm.tirx.floordiv(group.parts + (width - 1), group.int(width)) * loads

        def body(y: tvm.Expr, x: tvm.Expr) -> Stmt:
            buffers, added, results = list[Any](), list[Stmt](), list[Stmt]()
            for i in positions:
                dtype = group.sums[i].dtype
                total, numbers, mean = local("sum", 1, dtype), numbers_for(loads, dtype), local("mean", 1, dtype)
                each = group.sums[i]
                buffers.extend([total, numbers] if each.mean is None else [total, numbers, mean])
                if each.mean is not None:
                    totals = [t[x] for t in self.totals]
                    column = group.values(None, self.column(x))
                    added.append(store(mean, group.with_sums(each.mean, totals, column)))

                def number(n: Expr, i: int = i, mean: tvm.Buffer = mean) -> Expr:
                    part = n * _PART_THREADS + y
                    value = self._of_part(i, part, x, mean)
                    return tvm.tirx.if_then_else(part < group.parts, value, zero_of(self.parts[i]))

                added.append(sum_into(total, numbers, count, number))
                results.append(store(self.of_threads[i], total[0], y, x))
            in_columns = guarded(self.column(x) < group.columns, sequence([*added, *results]))
            return allocating(in_columns, buffers, "parts")

        return over_threads(group, _PART_THREADS, _COLUMNS, body)

    def _of_part(self, i: int, part: Expr, x: tvm.Expr, mean: tvm.Buffer) -> Expr:
        each, index = self.group.sums[i], (part, self.column(x))
        if each.mean is None:
            return self.parts[i][index]
        return squares_about(mean[0], self.parts[i][index], self.parts[each.total][index], self.group.rows_of(part))

    def add_threads(self, positions: Sequence[int]) -> Stmt:
        """One thread for each column adds the sums of the threads."""
        group = self.group

        def body(y: tvm.Expr, x: tvm.Expr) -> Stmt:
            values, buffers, statements = group.values(None, self.column(x)), list[Any](), list[Stmt]()
            for i in positions:
                each = group.sums[i]
                total, numbers = local("sum", 1, each.dtype), numbers_for(_PART_THREADS, each.dtype)
                of_threads = self.of_threads[i]
                threads = group.int(_PART_THREADS)
                statements.append(sum_into(total, numbers, threads, lambda n, of=of_threads: of[n, x]))
                statements.append(store(self.totals[i], total[0], x))
                if self.stored[i]:
                    place = [substitute(index, values) for index in group.place(each)]
                    statements.append(store(each.result, total[0], *place))
                buffers.extend([total, numbers])
            return allocating(self._in_one_thread(y, x, statements), buffers, "columns")

        return over_threads(group, _PART_THREADS, _COLUMNS, body)

    def store_results(self, stores: Sequence[Any]) -> Stmt:
        """One thread for each column computes what follows from its sums."""

        def body(y: tvm.Expr, x: tvm.Expr) -> Stmt:
            values, totals = self.group.values(None, self.column(x)), [t[x] for t in self.totals]
            return self._in_one_thread(y, x, [self.group.with_sums(s, totals, values) for s in stores])

        return over_threads(self.group, _PART_THREADS, _COLUMNS, body)

    def _in_one_thread(self, y: tvm.Expr, x: tvm.Expr, statements: Sequence[Stmt]) -> Stmt:
        in_columns = guarded(self.column(x) < self.group.columns, sequence(statements))
        return tvm.tirx.IfThenElse(tvm.tirx.EQ(y, self.group.int(0)), in_columns, None)
