"""The largest or smallest elements up to each one along an axis, with their positions, as hand-written loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import Index, each_column, in_blocks, like, nest

Key = Callable[[Any], Any]


def running_extrema(x: Tensor, axis: int, largest: bool, key: Key, kind: str) -> Sequence[Any]:
    """For each element of x, the largest (or smallest) up to it along an axis, and its position as int64, the last
    position of equal ones. key: the integer that sorts as an element does.  kind: of the device."""
    if not x.shape:
        return te.compute((), lambda: x(), "extremum"), te.compute((), lambda: tirx.const(0, "int64"), "position")
    length, others = x.shape[axis], [*x.shape[:axis], *x.shape[axis + 1 :]]
    is_last = axis == len(x.shape) - 1

    def row(index: Index, buffers: list[Any]) -> None:
        extrema = _Extrema(1, buffers, key, largest)
        with script_tirx.serial(0, length) as step:
            extrema.take(0, step, (*index[:axis], step, *index[axis:]))

    def row_in_blocks(index: Index, buffers: list[Any]) -> None:
        extrema, size = _Extrema(1, buffers, key, largest), like(limits.SCAN_COLUMNS, length)
        with script_tirx.serial(0, tirx.floordiv(length, size)) as block:
            extrema.take_block(block * size, index)
        whole = tirx.floordiv(length, size) * size
        with script_tirx.serial(0, length - whole) as rest:
            extrema.take(0, whole + rest, (*index, whole + rest))

    def columns(index: Index, buffers: list[Any]) -> None:
        *outer, block = index
        extrema = _Extrema(limits.SCAN_COLUMNS, buffers, key, largest)

        def take(lane: Expr, step: Expr, column: Expr) -> None:
            extrema.take(lane, step, (*outer[:axis], step, *outer[axis:], column))

        each_column(x.shape, axis, block, take)

    if kind != "cpu":
        body = nest(others, row)
    else:
        body = nest(others, row_in_blocks) if is_last else nest(in_blocks(others), columns)
    return te.extern([x.shape, x.shape], [x], body, dtype=[str(x.dtype), "int64"], name="running")


class _Extrema:
    """`count` extrema in registers. buffers: elements, results and positions."""

    def __init__(self, count: int, buffers: list[Any], key: Key, largest: bool) -> None:
        self.read, self.values, self.positions = buffers
        self.key, self.largest = key, largest
        dtype = str(self.read.dtype)
        self.key_dtype = dtype_of(key(tirx.const(0, dtype)))
        self.value, self.position = registers(count, dtype), registers(count, "int64")
        self.best = registers(count, self.key_dtype)
        least, most = dtypes.int_range(self.key_dtype)
        lanes = like(count, self.position[0])
        with script_tirx.vectorized(like(0, lanes), lanes) as lane:
            self.value[lane], self.position[lane] = tirx.const(0, dtype), tirx.const(0, "int64")
            self.best[lane] = tirx.const(least if largest else most, self.key_dtype)

    def take(self, lane: Any, step: Any, element: Index) -> None:
        """Take the element at `step` along the axis into an extremum, and write the results."""
        key = self.key(self.read[element])
        is_best = self._reaches(key, self.best[lane])
        self.position[lane] = tirx.Select(is_best, step.astype("int64"), self.position[lane])
        self.value[lane] = tirx.Select(is_best, self.read[element], self.value[lane])
        self.best[lane] = self._better(key, self.best[lane])
        self.values[element], self.positions[element] = self.value[lane], self.position[lane]

    def take_block(self, first: Expr, index: Index) -> None:
        """Take limits.SCAN_COLUMNS elements of a row: of random ones, most blocks have no new extremum."""
        zero, size = like(0, first), like(limits.SCAN_COLUMNS, first)
        keys = registers(limits.SCAN_COLUMNS, self.key_dtype)
        with script_tirx.vectorized(zero, size) as lane:
            keys[lane] = self.key(self.read[(*index, first + lane)])
        lanes = limits.SCAN_COLUMNS
        while lanes > 1:
            lanes //= 2
            with script_tirx.vectorized(zero, like(lanes, first)) as lane:
                keys[lane] = self._better(keys[lane], keys[lane + like(lanes, first)])
        with script_tirx.If(self._reaches(keys[0], self.best[0])):
            with script_tirx.Then(), script_tirx.serial(zero, size) as lane:
                self.take(0, first + lane, (*index, first + lane))
            with script_tirx.Else(), script_tirx.vectorized(zero, size) as lane:
                element = (*index, first + lane)
                self.values[element], self.positions[element] = self.value[0], self.position[0]

    def _reaches(self, key: Expr, best: Expr) -> Any:
        return key >= best if self.largest else key <= best

    def _better(self, key: Any, other: Any) -> Any:
        return (tirx.max if self.largest else tirx.min)(key, other)
