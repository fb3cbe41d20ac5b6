"""Stable sorts of the positions of each row, as hand-written loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te.elementwise import accumulation_dtype
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


def search_rows(sequence: Tensor, values: Tensor, right: bool, kind: str) -> Any:
    """The position at which each value would be put into the row of `sequence`, ascending along its last axis, that its
    leading index names (a vector: the only row): before equal elements, or behind them (right). By bisection, in as
    many steps for every value: vectors hold several. In a vector of floats, the position in an even distribution is
    tried first. kind: of the device."""
    size = tirx.Cast("int64", sequence.shape[-1])
    may_have_two = not isinstance(sequence.shape[-1], tirx.IntImm) or int(sequence.shape[-1]) > 1
    tries = kind == "cpu" and len(sequence.shape) == 1 and dtypes.is_float(str(sequence.dtype)) and may_have_two

    def is_before(other: Expr, key: Expr) -> Expr:
        other = position_key(other, True)
        return other <= key if right else other < key

    def bisect(rows: Any, row: Index, key: Expr) -> Expr:
        first, count = range(2)
        state = registers(2, "int64")

        def steps(position: Expr, count: Expr) -> Any:
            """`count` if the element is before the value, else 0."""
            return count * tirx.Cast("int64", is_before(rows[(*row, position)], key))

        state[first], state[count] = _int(0), size
        with script_tirx.While(state[count] > _int(1)):
            half = state[count] >> _int(1)
            state[first] = state[first] + steps(state[first] + half - _int(1), half)
            state[count] = state[count] - (state[count] >> _int(1))
        with script_tirx.If(size > _int(0)), script_tirx.Then():
            state[first] = state[first] + steps(state[first], _int(1))
        return state[first]

    def element(index: Index, buffers: list[Any]) -> None:
        rows, values, places = buffers[:3]
        row, place = (index[:-1] if len(sequence.shape) > 1 else ()), index or 0
        value = values[place]
        key = position_key(value, True)
        if not tries:
            places[place] = bisect(rows, row, key)
            return
        guess = registers(1, "int64")
        guess[0] = _int(0)
        with script_tirx.If(tirx.NE(buffers[3][0], tirx.const(0, "int32"))), script_tirx.Then():
            guess[0] = _even_position(rows, value, size)
        before, behind = rows[guess[0]], rows[tirx.max(tirx.min(guess[0] + _int(1), size - _int(1)), _int(0))]
        is_between = tirx.all(is_before(before, key), tirx.Not(is_before(behind, key)))
        with script_tirx.If(tirx.all(tirx.NE(buffers[3][0], tirx.const(0, "int32")), is_between)):
            with script_tirx.Then():
                places[place] = guess[0] + _int(1)
            with script_tirx.Else():
                places[place] = bisect(rows, row, key)

    if not tries:
        return te.extern([values.shape], [sequence, values], nest(values.shape, element), dtype="int64", name="places")

    def loops(ins: Any, outs: Any) -> Any:
        with tvm.IRBuilder() as prelude:
            _check_order(
                script_tirx.buffer_proxy(ins[0]), size, _count(values.shape), script_tirx.buffer_proxy(outs[1])
            )
        return tirx.SeqStmt([prelude.get(), nest(values.shape, element)(ins, outs)])

    dtype = ["int64", "int32"]
    return te.extern([values.shape, [1]], [sequence, values], loops, dtype=dtype, name="places")[0]


def _count(shape: Any) -> Any:
    counts: list[Any] = [tirx.Cast("int64", d) for d in shape]
    return math.prod(counts, start=_int(1))


def _check_order(row: Any, size: Any, count: Any, result: Any) -> None:
    """Store in `result` whether the row ascends, which the position found by another way than bisection depends on; 0
    for rows with less than two elements, and for rows with more elements than there are values."""
    with script_tirx.serial(0, 1):
        result[0] = tirx.Cast("int32", tirx.all(size > _int(1), size <= count))
        pairs = tirx.Select(tirx.NE(result[0], tirx.const(0, "int32")), size - _int(1), _int(0))
        with script_tirx.serial(0, pairs) as position:
            a, b = (position_key(row[position + _int(n)], True) for n in range(2))
            result[0] = result[0] & tirx.Cast("int32", a <= b)


def _even_position(row: Any, value: Expr, size: Expr) -> Expr:
    """The position of the last element that is not above a value if all distances are equal; 0 if it is outside."""
    low, high, wide = row[_int(0)], row[size - _int(1)], accumulation_dtype(str(row.dtype))
    last = tirx.Cast(wide, size - _int(1))
    place = (tirx.Cast(wide, value) - tirx.Cast(wide, low)) * (last / (tirx.Cast(wide, high) - tirx.Cast(wide, low)))
    inside = tirx.all(place >= tirx.const(0, wide), place < last)
    return tirx.Cast("int64", tirx.Select(inside, place, tirx.const(0, wide)))


def _sort_row(size: Any, count: Any, *, is_part: bool) -> Callable[[Index, list[Any]], None]:
    """Loops that put the first `count` positions of one row in order, in the first half of a buffer. Positions in a
    short row are stored at their ranks; of a long row, only the elements that are returned are sorted."""
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


def sorts_in_blocks(kind: str, x: Any, axis: int) -> bool:
    """Whether blocks of threads of a GPU sort rows: where there are elements, whose positions have 32 bits."""
    if kind != "cuda" or not x.shape:
        return False
    extents = [int(d) if isinstance(d, (int, tirx.IntImm)) else None for d in x.shape]
    length = extents[axis]
    return 0 not in extents and (length is None or length < 1 << 32)


def argsort(x: Tensor, axis: int, descending: bool, kind: str) -> Any:
    """The positions of the elements in sorted order along an axis. kind: of the device."""
    if sorts_in_blocks(kind, x, axis):
        return sort_rows(x, axis % len(x.shape), descending, None, values=False)
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: positions(*move_last(i, axis)), "argsort")


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
