"""Stable sorts of the positions of each row, as hand-written loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta._generated import limits
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.merge_sort import MergeKernels
from meta.backend.tvm.te.radix_sort import RadixKernels
from meta.backend.tvm.te.reduce import position_key
from meta.backend.tvm.te.scan import Index, nest
from meta.backend.tvm.te.selection import rank_all, row_keys, select_first
from meta.backend.tvm.te.sorting import Sort


def move_last(index: Index, axis: int) -> Index:
    """An index with the entry of `axis` moved to the end."""
    return (*index[:axis], *index[axis + 1 :], *index[axis : axis + 1])


def sort_positions(x: Tensor, axis: int, descending: bool, count: Any = None) -> tuple[Any, int]:
    """The first `count` sorted positions (None: all), along the last axis of the result, and the axis of x that was
    sorted."""
    if not x.shape:
        return te.compute((), lambda: _int(0), "order"), 0
    axis = axis % len(x.shape)
    *others, size = move_last(tuple(x.shape), axis)
    returned = size if count is None else count
    keys = row_keys(x, axis, descending)
    row = nest(others, _sort_row(size, returned, is_part=count is not None))
    merged = te.extern([[2, *others, returned]], [keys], row, dtype="int64")
    return te.compute((*others, returned), lambda *i: merged(0, *i), "order"), axis


def search_rows(sequence: Tensor, values: Tensor, right: bool) -> Any:
    """The position at which each value would be put into the row of `sequence`, ascending along its last axis, that its
    leading index names (a vector: the only row): before equal elements, or behind them (right). By bisection, in as
    many steps for every value: vectors hold several."""
    size = tirx.Cast("int64", sequence.shape[-1])

    def element(index: Index, buffers: list[Any]) -> None:
        rows, values, places = buffers
        row, place = (index[:-1] if len(sequence.shape) > 1 else ()), index or 0
        first, count = range(2)
        state = registers(2, "int64")
        key = position_key(values[place], True)

        def steps(position: Expr, count: Expr) -> Any:
            """`count` if the element is before the value, else 0."""
            other = position_key(rows[(*row, position)], True)
            return count * tirx.Cast("int64", other <= key if right else other < key)

        state[first], state[count] = _int(0), size
        with script_tirx.While(state[count] > _int(1)):
            half = state[count] >> _int(1)
            state[first] = state[first] + steps(state[first] + half - _int(1), half)
            state[count] = state[count] - (state[count] >> _int(1))
        with script_tirx.If(size > _int(0)), script_tirx.Then():
            state[first] = state[first] + steps(state[first], _int(1))
        places[place] = state[first]

    return te.extern([values.shape], [sequence, values], nest(values.shape, element), dtype="int64", name="positions")


def _sort_row(size: Any, count: Any, *, is_part: bool) -> Callable[[Index, list[Any]], None]:
    """Loops that put the first `count` positions of one row in order, in the first half of a buffer. Those of a short
    row are stored at their ranks; of a part of a long row, only the elements of that part are sorted."""
    length, returned = tirx.Cast("int64", size), tirx.Cast("int64", count)

    def row(index: Index, buffers: list[Any]) -> None:
        keys, order = buffers

        def store(rank: Any, position: Any) -> None:
            order[(0, *index, rank)] = position

        def store_returned(rank: Any, position: Any) -> None:
            with script_tirx.If(rank < returned), script_tirx.Then():
                store(rank, position)

        with script_tirx.If(length <= _int(limits.RANKED_ROW)):
            with script_tirx.Then():
                rank_all(keys, index, length, store_returned)
            with script_tirx.Else():
                if is_part:
                    with script_tirx.If(returned > _int(0)), script_tirx.Then():
                        select_first(keys, index, length, returned, store)
                else:
                    with script_tirx.serial(0, returned) as position:
                        store(position, position)
                _merge_runs(keys, order, index, returned)

    return row


def _merge_runs(keys: Any, order: Any, index: Index, size: Expr) -> None:
    """Sort the positions in the first half of `order` bottom-up: merge runs of 1, 2, 4, ... elements from one half of
    the buffer into the other. Passes come in pairs, so that the result ends in the first half."""
    state = registers(3, "int64")
    left, right, width = range(3)

    def merge(half: int, run: Expr) -> None:
        with script_tirx.serial(0, tirx.floordiv(size + 2 * run - 1, 2 * run)) as pair:
            start = pair * 2 * run
            middle, end = tirx.min(start + run, size), tirx.min(start + 2 * run, size)
            state[left] = start
            state[right] = middle
            with script_tirx.serial(0, end - start) as step:
                a = order[(half, *index, tirx.min(state[left], size - 1))]
                b = order[(half, *index, tirx.min(state[right], size - 1))]
                is_before = keys[(*index, b)] < keys[(*index, a)]
                from_right = tirx.any(state[left] >= middle, tirx.all(state[right] < end, is_before))
                with script_tirx.If(from_right):
                    with script_tirx.Then():
                        order[(1 - half, *index, start + step)] = b
                        state[right] = state[right] + 1
                    with script_tirx.Else():
                        order[(1 - half, *index, start + step)] = a
                        state[left] = state[left] + 1

    state[width] = _int(1)
    with script_tirx.While(state[width] < size):
        merge(0, state[width])
        merge(1, state[width] * 2)
        state[width] = state[width] * 4


def _int(value: int) -> Any:
    return tirx.const(value, "int64")


def sort_rows(
    x: Tensor, axis: int, descending: bool, count: Any, *, values: bool = True, positions: bool = True
) -> Any:
    """The first `count` elements along an axis in sorted order, or their positions as int64, or both.

    axis: from the front.  count: at most the extent of the axis, which is below 2**32; None for all elements."""
    shape = (*x.shape[:axis], x.shape[axis] if count is None else count, *x.shape[axis + 1 :])
    sort = Sort.of(x, axis, descending, count)
    are_values = [True] * values + [False] * positions

    def body(ins: Any, outs: Any) -> Any:
        planes = [tirx.decl_buffer((size,), dtype, "kept") for size, dtype in sort.planes]
        buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs, *planes)]
        statements = [tirx.AllocBuffer(plane) for plane in planes]
        for kernels in (MergeKernels, RadixKernels):
            statements += kernels(sort, are_values, buffers).statements()
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    kinds = [sort.dtype if is_value else "int64" for is_value in are_values]
    return te.extern([shape] * len(kinds), [x], body, dtype=kinds, name="sorted")
