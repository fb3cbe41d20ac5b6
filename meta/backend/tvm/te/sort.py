"""Stable merge sort of the positions of each row, as hand-written loops."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.merge_sort import MergeKernels
from meta.backend.tvm.te.radix_sort import RadixKernels
from meta.backend.tvm.te.reduce import position_key
from meta.backend.tvm.te.scan import Index, nest
from meta.backend.tvm.te.sorting import Sort


def move_last(index: Index, axis: int) -> Index:
    """An index with the entry of `axis` moved to the end."""
    return (*index[:axis], *index[axis + 1 :], *index[axis : axis + 1])


def sort_positions(x: Tensor, axis: int, descending: bool) -> tuple[Any, int]:
    """The sorted positions, along the last axis of the result, and the axis of x that was sorted."""
    if not x.shape:
        return te.compute((), lambda: _int(0), "order"), 0
    axis = axis % len(x.shape)
    *others, size = move_last(tuple(x.shape), axis)
    keys = te.compute((*others, size), lambda *i: position_key(x(*i[:axis], i[-1], *i[axis:-1]), True), "keys")
    merged = te.extern([[2, *others, size]], [keys], nest(others, _merge_sort(size, descending)), dtype="int64")
    return te.compute((*others, size), lambda *i: merged(0, *i), "order"), axis


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


def _merge_sort(size: Any, descending: bool) -> Any:
    """Loops that sort the positions of one row bottom-up: they merge runs of 1, 2, 4, ... elements from one half of the
    buffer into the other. Passes come in pairs, so that the result ends in the first half."""

    def row(index: Index, buffers: list[Any]) -> None:
        keys, order = buffers
        state = registers(3, "int64")
        left, right, width = range(3)

        def is_before(b: Expr, a: Expr) -> Any:
            first, second = keys[(*index, b)], keys[(*index, a)]
            return first > second if descending else first < second

        def merge(half: int, run: Expr) -> None:
            with script_tirx.serial(0, tirx.floordiv(size + 2 * run - 1, 2 * run)) as pair:
                start = pair * 2 * run
                middle, end = tirx.min(start + run, size), tirx.min(start + 2 * run, size)
                state[left] = start
                state[right] = middle
                with script_tirx.serial(0, end - start) as step:
                    a = order[(half, *index, tirx.min(state[left], size - 1))]
                    b = order[(half, *index, tirx.min(state[right], size - 1))]
                    from_right = tirx.any(state[left] >= middle, tirx.all(state[right] < end, is_before(b, a)))
                    with script_tirx.If(from_right):
                        with script_tirx.Then():
                            order[(1 - half, *index, start + step)] = b
                            state[right] = state[right] + 1
                        with script_tirx.Else():
                            order[(1 - half, *index, start + step)] = a
                            state[left] = state[left] + 1

        with script_tirx.serial(0, size) as position:
            order[(0, *index, position)] = position
        state[width] = _int(1)
        with script_tirx.While(state[width] < size):
            merge(0, state[width])
            merge(1, state[width] * 2)
            state[width] = state[width] * 4

    return row


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
