"""Computes whose steps depend on each other, as hand-written loops: running sums along an axis, powers of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast
from meta.backend.tvm.te.loops import independent, registers
from meta.records import record

Index = tuple[Any, ...]


@record
class Scan:
    """For each element of x, all elements up to it along an axis, combined.

    Floats are combined in float64, as in torch, since the errors of float32 grow with the length.

    Attributes:
        combine: the result for some elements and the next ones, associative but for rounding.
        start: the result for no elements.
        axis: counted from the front.
        exclusive: combine the elements before each element only.
        reverse: start at the end of the axis.
        dtype: of the result.
        by_halves: whether neighbours may be combined before the elements before them. Sums of float32 and of integers
            may be; other results can overflow there and not in order.
    """

    combine: Callable[[Any, Any], Any]
    start: float
    axis: int
    exclusive: bool
    reverse: bool
    dtype: str
    by_halves: bool

    @property
    def wide(self) -> str:
        """The dtype in which elements are combined."""
        narrow = accumulation_dtype(self.dtype)
        return "float64" if dtypes.is_float(narrow) else narrow

    def of(self, x: Tensor, kind: str) -> Any:
        """The results for x, on a device of a kind."""
        if not x.shape:
            first = tirx.const(self.start, self.dtype) if self.exclusive else self._written(self._read(x()))
            return te.compute((), lambda: first)
        if kind == "cpu" and self.axis < len(x.shape) - 1:
            body, others = self._columns, in_blocks([*x.shape[: self.axis], *x.shape[self.axis + 1 :]])
        elif kind == "cpu" and self.by_halves:
            body, others = self._row_by_halves, list(x.shape[:-1])
        else:
            body, others = self._row, [*x.shape[: self.axis], *x.shape[self.axis + 1 :]]
        return te.extern([x.shape], [x], nest(others, partial(body, x.shape)), dtype=self.dtype, name="scan")

    def _read(self, element: Any) -> Any:
        """An element, as an element of the result is rounded, in the dtype in which it is combined."""
        return cast(cast(element, accumulation_dtype(self.dtype)), self.wide)

    def _written(self, total: Any) -> Any:
        return cast(cast(total, accumulation_dtype(self.dtype)), self.dtype)

    def _row(self, shape: Any, index: Index, buffers: list[Any]) -> None:
        """The results along the axis at an index of the other axes, one after the other."""
        read, write = buffers
        total = registers(1, self.wide)
        total[0] = tirx.const(self.start, self.wide)
        with script_tirx.serial(0, shape[self.axis]) as step:
            position = (*index[: self.axis], self._position(shape, step), *index[self.axis :])
            self._step(total, 0, read, write, position)

    def _columns(self, shape: Any, index: Index, buffers: list[Any]) -> None:
        """The same for a block of columns, whose results are independent of each other."""
        read, write = buffers
        *others, block = index
        total = registers(limits.SCAN_COLUMNS, self.wide)
        with script_tirx.vectorized(like(0, block), like(limits.SCAN_COLUMNS, block)) as lane:
            total[lane] = tirx.const(self.start, self.wide)

        def add(lane: Expr, step: Expr, column: Expr) -> None:
            before = (*others[: self.axis], self._position(shape, step), *others[self.axis :])
            self._step(total, lane, read, write, (*before, column))

        each_column(shape, self.axis, block, add)

    def _row_by_halves(self, shape: Any, index: Index, buffers: list[Any]) -> None:
        """The results along the last axis, in blocks: the additions of a block but for one wait for no other block."""
        read, write = buffers
        total, length = registers(1, self.wide), shape[-1]
        size = like(limits.SCAN_BLOCK, length)
        total[0] = tirx.const(self.start, self.wide)
        with script_tirx.serial(0, tirx.floordiv(length, size)) as block:
            positions = [
                (*index, self._position(shape, block * size + like(n, length))) for n in range(limits.SCAN_BLOCK)
            ]
            parts = registers(limits.SCAN_BLOCK, self.wide)
            for n, position in enumerate(positions):
                parts[n] = self._read(read[position])
            distance = 1
            while distance < limits.SCAN_BLOCK:
                for n in range(limits.SCAN_BLOCK):
                    if n & distance:
                        parts[n] = self.combine(parts[n - n % distance - 1], parts[n])
                distance *= 2
            for n, position in enumerate(positions):
                before = total[0] if n == 0 else self.combine(total[0], parts[n - 1])
                write[position] = self._written(before if self.exclusive else self.combine(total[0], parts[n]))
            total[0] = self.combine(total[0], parts[limits.SCAN_BLOCK - 1])
        whole = tirx.floordiv(length, size) * size
        with script_tirx.serial(0, length - whole) as rest:
            self._step(total, 0, read, write, (*index, self._position(shape, whole + rest)))

    def _position(self, shape: Any, step: Any) -> Any:
        """The position along the axis of a step."""
        return shape[self.axis] - like(1, step) - step if self.reverse else step

    def _step(self, totals: Any, lane: Any, read: Any, write: Any, position: Index) -> None:
        """Combine an element with a result, and write the result before or after."""
        element = self._read(read[position])
        if self.exclusive:
            write[position] = self._written(totals[lane])
        totals[lane] = self.combine(totals[lane], element)
        if not self.exclusive:
            write[position] = self._written(totals[lane])


def in_blocks(shape: Sequence[Any]) -> list[Any]:
    """The shape with the number of blocks of columns in place of columns."""
    *others, columns = shape
    return [
        *others,
        tirx.floordiv(columns + like(limits.SCAN_COLUMNS - 1, columns), like(limits.SCAN_COLUMNS, columns)),
    ]


def each_column(shape: Any, axis: int, block: Expr, step: Callable[[Any, Any, Any], None]) -> None:
    """`step(lane, position along the axis, column)` in order for all columns of a block, whole blocks in vectors."""
    first = block * like(limits.SCAN_COLUMNS, block)
    count = tirx.min(shape[-1] - first, like(limits.SCAN_COLUMNS, first))

    def steps(lanes: Any) -> None:
        with script_tirx.serial(0, shape[axis]) as position, lanes() as lane:
            step(lane, position, first + lane)

    with script_tirx.If(tirx.EQ(count, like(limits.SCAN_COLUMNS, count))):
        with script_tirx.Then():
            steps(lambda: script_tirx.vectorized(like(0, count), like(limits.SCAN_COLUMNS, count)))
        with script_tirx.Else():
            steps(lambda: script_tirx.serial(like(0, count), count))


def replace_index(index: Index, axis: int, position: Any) -> Index:
    """An index with the entry of `axis` replaced."""
    return (*index[:axis], position, *index[axis + 1 :]) if index else index


def squarings(base: Any, exponent: Any, bits: int) -> Any:
    """base ** exponent of integer tensors of one shape, by squaring, from the lowest `bits` bits of the exponent."""
    dtype = str(base.dtype)
    one = tirx.const(1, dtype)

    def element(index: Index, buffers: list[Any]) -> None:
        source, power, result = buffers
        position = index or 0
        square = registers(1, dtype)
        result[position] = one
        square[0] = source[position]
        with script_tirx.serial(0, bits) as bit:
            bit_set = tirx.EQ((power[position] >> bit.astype(dtype)) & one, one)
            result[position] = result[position] * tirx.Select(bit_set, square[0], one)
            square[0] = square[0] * square[0]

    return te.extern([base.shape], [base, exponent], nest(base.shape, element), dtype=dtype, name="squarings")


def common_divisors(a: Any, b: Any) -> Any:
    """The greatest common divisors of integer tensors of one shape, by Euclid's algorithm on absolute values."""
    dtype = str(a.dtype)
    zero = tirx.const(0, dtype)

    def size(x: Expr) -> Any:
        return x if dtype.startswith("u") else tirx.Select(x < zero, zero - x, x)

    def element(index: Index, buffers: list[Any]) -> None:
        first, second, result = buffers
        position = index or 0
        state = registers(3, dtype)
        state[0] = size(first[position])
        state[1] = size(second[position])
        with script_tirx.While(tirx.NE(state[1], zero)):
            state[2] = tirx.truncmod(state[0], state[1])
            state[0] = state[1]
            state[1] = state[2]
        result[position] = size(state[0])

    return te.extern([a.shape], [a, b], nest(a.shape, element), dtype=dtype, name="common_divisors")


def nest(shape: Any, body: Callable[[Index, list[Any]], None]) -> Callable[[Any, Any], Any]:
    """The body of a `te.extern`: `body(index, buffers)` in independent loops over `shape`, the outermost parallel."""

    def loops(ins: Any, outs: Any) -> Any:
        with tvm.IRBuilder() as builder:
            buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs)]
            with ExitStack() as opened:
                kinds = [script_tirx.parallel, *[independent] * len(shape)]
                index = tuple(opened.enter_context(kind(0, size)) for kind, size in zip(kinds, shape, strict=False))
                if not index:
                    opened.enter_context(independent(0, 1))  # a builder holds one statement; the body may have several
                body(index, buffers)
        return builder.get()

    return loops


def like(value: int, index: Any) -> Any:
    """A number in the dtype of an index."""
    return tirx.const(value, dtype_of(index))
