"""Elements of rows by their rank, without sorting the row, as hand-written loops for the CPU.

The key at a rank of a long row is found by bisection, two bits at a time from the highest: the elements below three
keys are counted, which vectors do several at once, and the counts say in which quarter the key is. In a short row, the
elements before each one are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import Index, like, nest
from meta.backend.tvm.te.sorting import ordered_key

_LANES: Final = 16
"""Elements that are compared at once; rows are padded to a multiple of it."""


def rank_positions(x: Tensor, ranks: Tensor, axis: int) -> Any:
    """The positions of the elements that a stable ascending sort of x along an axis puts at `ranks`.

    x: of at least one axis.  ranks: of the shape of x but for the axis.  axis: from the front."""
    keys = row_keys(x, axis, descending=False)
    size = tirx.Cast("int64", x.shape[axis])

    def element(index: Index, buffers: list[Any]) -> None:
        rows, wanted, positions = buffers
        row = (*index[:axis], *index[axis + 1 :])
        positions[index] = _int(0)
        with script_tirx.If(size > _int(0)), script_tirx.Then():
            rank = registers(1, "int64")
            rank[0] = tirx.max(tirx.min(tirx.Cast("int64", wanted[index]), size - _int(1)), _int(0))
            with script_tirx.If(size <= _int(limits.RANKED_ROW)):
                with script_tirx.Then():
                    positions[index] = _counted_position(rows, row, size, rank[0])
                with script_tirx.Else():
                    positions[index] = Search(rows, row, size, rank[0]).position()

    return te.extern([ranks.shape], [keys, ranks], nest(ranks.shape, element), dtype="int64", name="rank_positions")


def select_first(rows: Any, row: Index, size: Expr, count: Expr, write: Callable[[Expr, Expr], None]) -> None:
    """`write(n, position)` for the positions, in ascending order, of the first `count` elements of a row in sorted
    order. count: at least 1, at most `size`."""
    found = Search(rows, row, size, count - _int(1))
    state, lanes = registers(2, "int64"), registers(_LANES, "int32")
    equal, written = range(2)
    state[equal], state[written] = found.equal_before() + _int(1), _int(0)
    with script_tirx.serial(0, tirx.floordiv(rows.shape[-1], _LANES)) as block:
        with script_tirx.vectorized(0, _LANES) as lane:
            lanes[lane] = tirx.Cast("int32", found.is_below_or_found(found.key(block * _LANES + lane)))
        with script_tirx.If(_total(lanes) > _int(0)), script_tirx.Then(), script_tirx.serial(0, _LANES) as lane:
            position = tirx.Cast("int64", block * _LANES + lane)
            key = found.key(position)
            is_equal = found.is_found(key)
            is_taken = tirx.any(found.is_below(key), tirx.all(is_equal, state[equal] > _int(0)))
            with script_tirx.If(tirx.all(is_taken, position < size)), script_tirx.Then():
                write(state[written], position)
                state[written] = state[written] + _int(1)
                state[equal] = state[equal] - tirx.Cast("int64", is_equal)


def rank_all(rows: Any, row: Index, size: Expr, take: Callable[[Expr, Expr], None]) -> None:
    """`take(rank, position)` for all elements of a short row: their ranks in sorted order."""

    def each(first: Expr, before: Any) -> None:
        with script_tirx.serial(0, tirx.min(size - first, like(_LANES, size))) as lane:
            take(tirx.Cast("int64", before[lane]), first + lane)

    _each_ranked(rows, row, size, each)


def row_keys(x: Tensor, axis: int, descending: bool) -> Any:
    """The integers that sort as the elements do, with the axis last, behind them the largest up to whole vectors."""
    size, others = x.shape[axis], [*x.shape[:axis], *x.shape[axis + 1 :]]
    lanes = like(_LANES, size)
    padded = tirx.floordiv(size + like(_LANES - 1, size), lanes) * lanes

    def element(*i: Expr) -> Any:
        key = ordered_key(x(*i[:axis], i[-1], *i[axis:-1]), descending)
        return tirx.if_then_else(i[-1] < size, key, tirx.max_value(dtype_of(key)))

    return te.compute((*others, padded), element, "keys")


def _counted_position(rows: Any, row: Index, size: Expr, rank: Expr) -> Expr:
    """The position of the element of a short row that has `rank` elements before it in order."""
    found, wanted, zero = registers(_LANES, "int32"), tirx.Cast("int32", rank), tirx.const(0, "int32")
    with script_tirx.vectorized(0, _LANES) as lane:
        found[lane] = zero

    def add(first: Expr, before: Any) -> None:
        with script_tirx.vectorized(0, _LANES) as lane:
            position = tirx.Cast("int32", first + lane)
            found[lane] = found[lane] + tirx.Select(tirx.EQ(before[lane], wanted), position, zero)

    _each_ranked(rows, row, size, add)
    return _total(found)


def _each_ranked(rows: Any, row: Index, size: Expr, body: Callable[[Expr, Any], None]) -> None:
    """`body(first, before)` for vectors of elements that begin at `first`: how many elements are before each one in
    order. The padding has all elements of the row before them."""
    before = registers(_LANES, "int32")
    with script_tirx.serial(0, tirx.floordiv(rows.shape[-1], _LANES)) as block:
        first = block * _LANES
        with script_tirx.vectorized(0, _LANES) as lane:
            before[lane] = tirx.const(0, "int32")
        with script_tirx.serial(0, size) as other, script_tirx.vectorized(0, _LANES) as lane:
            key, other_key = rows[(*row, first + lane)], rows[(*row, other)]
            is_earlier = tirx.Cast("int32", other < first + lane) & tirx.Cast("int32", tirx.EQ(other_key, key))
            before[lane] = before[lane] + (tirx.Cast("int32", other_key < key) | is_earlier)
        body(first, before)


def _total(lanes: Any) -> Expr:
    """The sum of numbers in registers, as int64."""
    total = registers(1, "int64")
    total[0] = _int(0)
    with script_tirx.unroll(0, _LANES) as lane:
        total[0] = total[0] + tirx.Cast("int64", lanes[lane])
    return total[0]


class Search:
    """The search for the key at a rank of a row with more than one element.

    rows: of integers of 32 or 64 bits, with a multiple of _LANES elements.  row: the index of the row.
    """

    def __init__(self, rows: Any, row: Index, size: Expr, rank: Expr) -> None:
        self.rows, self.row, self.size, self.rank = rows, row, size, rank
        self.bits = 64 if str(rows.dtype) == "int64" else 32
        self.dtype = f"uint{self.bits}"
        self._less, self._not_greater = registers(1, "int64"), registers(1, "int64")
        self._base, self._first, self._rest = registers(1, self.dtype), registers(1, self.dtype), registers(1, "int32")
        self._less[0], self._not_greater[0] = _int(0), size
        self._first[0] = tirx.const(0, self.dtype)
        self._find_range()
        is_open = tirx.all(self._rest[0] > 0, self._not_greater[0] - self._less[0] > 1)
        with script_tirx.While(is_open):  # until all bits are known, or one element has those that are
            self._rest[0] = self._rest[0] - 2
            self._descend()

    def _find_range(self) -> None:
        """The smallest key, from which all are counted, and how many bits the largest one then has, an even number."""
        least, most = registers(_LANES, self.rows.dtype), registers(_LANES, self.rows.dtype)
        with script_tirx.vectorized(0, _LANES) as lane:
            least[lane], most[lane] = tirx.max_value(self.rows.dtype), tirx.min_value(self.rows.dtype)
        blocks = script_tirx.serial(0, tirx.floordiv(self.rows.shape[-1], _LANES))
        with blocks as block, script_tirx.vectorized(0, _LANES) as lane:
            position = block * _LANES + lane
            key = self.rows[(*self.row, position)]
            least[lane] = tirx.min(least[lane], key)
            most[lane] = tirx.max(most[lane], tirx.Select(position < self.size, key, most[lane]))
        with script_tirx.unroll(1, _LANES) as lane:
            least[0], most[0] = tirx.min(least[0], least[lane]), tirx.max(most[0], most[lane])
        self._base[0] = tirx.reinterpret(self.dtype, least[0])
        span = registers(1, self.dtype)
        span[0], self._rest[0] = tirx.reinterpret(self.dtype, most[0]) - self._base[0], tirx.const(0, "int32")
        with script_tirx.While(span[0] > tirx.const(0, self.dtype)):
            span[0], self._rest[0] = span[0] >> tirx.const(2, self.dtype), self._rest[0] + 2

    def key(self, position: Expr) -> Expr:
        """The key of an element, counted from the smallest one."""
        return tirx.reinterpret(self.dtype, self.rows[(*self.row, position)]) - self._base[0]

    def is_below(self, key: Expr) -> Expr:
        return key < self._first[0]

    def is_found(self, key: Expr) -> Expr:
        """Whether a key begins with the bits that were found."""
        return tirx.all(key >= self._first[0], self.is_below_or_found(key))

    def is_below_or_found(self, key: Expr) -> Expr:
        return key <= (self._first[0] | (self._digit() - tirx.const(1, self.dtype)))

    def _digit(self) -> Expr:
        """The last bit that was found."""
        return tirx.const(1, self.dtype) << tirx.Cast(self.dtype, self._rest[0])

    def equal_before(self) -> Expr:
        """How many elements with the key are before the one at the rank."""
        return self.rank - self._less[0]

    def _descend(self) -> None:
        """Find two more bits of the key."""
        bounds, lanes = registers(3, self.dtype), [registers(_LANES, "int32") for _ in range(3)]
        for n in range(3):
            bounds[n] = self._first[0] | (self._digit() * tirx.const(n + 1, self.dtype))
            with script_tirx.vectorized(0, _LANES) as lane:
                lanes[n][lane] = tirx.const(0, "int32")
        blocks = script_tirx.serial(0, tirx.floordiv(self.rows.shape[-1], _LANES))
        with blocks as block, script_tirx.vectorized(0, _LANES) as lane:
            key = self.key(block * _LANES + lane)
            for n in range(3):
                lanes[n][lane] = lanes[n][lane] + tirx.Cast("int32", key < bounds[n])
        for n in range(3):
            count = _total(lanes[n])
            with script_tirx.If(count <= self.rank):
                with script_tirx.Then():
                    self._less[0], self._first[0] = count, bounds[n]
                with script_tirx.Else():
                    self._not_greater[0] = tirx.min(self._not_greater[0], count)

    def position(self) -> Expr:
        """The position of the element at the rank."""
        state = registers(2, "int64")
        place, left = range(2)
        state[place], state[left] = _int(0), self.equal_before()

        def is_found() -> Expr:
            return self.is_found(self.key(state[place]))

        with script_tirx.While(tirx.any(state[left] > _int(0), tirx.Not(is_found()))):
            state[left] = state[left] - tirx.Cast("int64", is_found())
            state[place] = state[place] + _int(1)
        return state[place]


def _int(value: int) -> Any:
    return tirx.const(value, "int64")
