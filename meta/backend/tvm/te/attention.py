"""Attention on CPUs as hand-written loops: the products of a block of queries in register tiles.

Threads share the heads. The threads of a head go through its queries in blocks, whose scores stay in the second-level
cache. Each product keeps a tile of rows times two vectors in registers. The keys (for gradients, the values too) are
transposed once for each head, so that a step of the sum over features reads adjacent keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te import tiles

Element = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class _Head:
    """Sizes of one head, and what its scores are multiplied by. block: queries of a block, a divisor of `queries`."""

    queries: int
    keys: int
    features: int
    values: int
    block: int
    dtype: str
    causal: bool
    factor: float

    @property
    def blocks(self) -> int:
        return self.queries // self.block

    def constant(self, value: float) -> Any:
        return tirx.const(value, self.dtype)


def _head(q: Tensor, k: Any, v: Tensor, causal: bool, scale: float | None) -> _Head:
    queries, features = (int(d) for d in q.shape[-2:])
    keys, values = (int(d) for d in v.shape[-2:])
    itemsize = 8 if str(q.dtype) == "float64" else 4
    most = max(limits.SCORES_BYTES // (keys * itemsize), 1)
    block = max(_divisors(queries, most), key=lambda n: (_tile_rows(n) >= 4, n))
    factor = 1 / math.sqrt(features) if scale is None else scale
    return _Head(queries, keys, features, values, block, str(q.dtype), causal, factor)


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def _tile_rows(rows: int) -> int:
    return max(_divisors(rows, min(8, tiles.most_rows())))


def attention(q: Tensor, k: Any, v: Tensor, causal: bool, scale: float | None) -> Any:
    """The result and the logarithms of the sums of exponentials, see the operator."""
    head = _head(q, k, v, causal, scale)

    def body(index: Sequence[Any], buffers: list[Any]) -> None:
        q, k, v, y, lse = (_of_head(buffer, index) for buffer in buffers)
        keys, scores = _panels(head, k, head.features), _buffer(head, head.block, head.keys)
        totals = _buffer(head, head.block)
        with script_tirx.serial(0, head.blocks) as block:
            first = block * head.block
            _scores(head, first, q, keys, scores)
            with script_tirx.serial(0, head.block) as row:
                _exponentials(head, scores, totals, row, lambda value: lse.store(value, first + row))

            def store(row: Expr, column: Expr, value: Expr) -> None:
                y.store(value / totals[row], first + row, column)

            _product(
                head, head.block, head.values, head.keys, lambda i, n: scores[i, n], lambda n, j: v.load(n, j), store
            )

    return _per_head([q, k, v], [(*q.shape[:-1], v.shape[-1]), q.shape[:-1]], body, head.dtype, "attention")


def attention_dx(q: Tensor, k: Tensor, v: Tensor, y: Any, lse: Any, dy: Any, causal: bool, scale: float | None) -> Any:
    """The gradients of q, k and v, see the operator."""
    head = _head(q, k, v, causal, scale)

    def body(index: Sequence[Any], buffers: list[Any]) -> None:
        q, k, v, y, lse, dy, dq, dk, dv = (_of_head(buffer, index) for buffer in buffers)
        keys, values = _panels(head, k, head.features), _panels(head, v, head.values)
        p, ds = _buffer(head, head.block, head.keys), _buffer(head, head.block, head.keys)
        with script_tirx.serial(0, head.blocks) as block:
            first = block * head.block
            _scores(head, first, q, keys, p)

            def store_ds(row: Expr, column: Expr, value: Expr) -> None:
                ds[row, column] = value

            _product(
                head, head.block, head.keys, head.values,
                lambda i, n: dy.load(first + i, n), values, store_ds,
            )  # fmt: skip
            with script_tirx.serial(0, head.block) as row:
                _score_gradients(head, p, ds, row, lse.load(first + row), y, dy, first + row)

            def accumulate(target: _OfHead) -> Callable[[Any, Any, Any], None]:
                def store(row: Expr, column: Expr, value: Expr) -> None:
                    if head.blocks > 1:
                        before = tirx.Select(block > 0, target.load(row, column), head.constant(0))
                        value = before + value
                    target.store(value, row, column)

                return store

            _product(
                head, head.block, head.features, head.keys, lambda i, n: ds[i, n], lambda n, j: k.load(n, j),
                lambda i, j, value: dq.store(value, first + i, j),
            )  # fmt: skip
            _product(
                head, head.keys, head.features, head.block,
                lambda i, n: ds[n, i], lambda n, j: q.load(first + n, j), accumulate(dk),
            )  # fmt: skip
            _product(
                head, head.keys, head.values, head.block,
                lambda i, n: p[n, i], lambda n, j: dy.load(first + n, j), accumulate(dv),
            )  # fmt: skip

    shapes = [q.shape, k.shape, v.shape]
    return _per_head([q, k, v, y, lse, dy], shapes, body, head.dtype, "attention_dx")


def _per_head(operands: Sequence[Any], shapes: Sequence[Any], body: Callable[..., None], dtype: str, name: str) -> Any:
    """Results of `shapes`, written by `body(index of the head, buffers)` in a parallel loop over the heads."""
    leading = [int(d) for d in operands[0].shape[:-2]]

    def loops(ins: Any, outs: Any) -> Any:
        with tvm.IRBuilder() as builder:
            buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs)]
            with script_tirx.parallel(0, math.prod(leading)) as head:
                index, rest = list[Any](), head
                for size in reversed(leading):
                    index.insert(0, rest % size)
                    rest = rest // size
                body(index, buffers)
        return builder.get()

    return te.extern([list(s) for s in shapes], list(operands), loops, dtype=[dtype] * len(shapes), name=name)


@dataclass(frozen=True, slots=True)
class _OfHead:
    """The part of a tensor that belongs to one head."""

    buffer: Any
    index: tuple[Any, ...]

    def load(self, *i: Any) -> Any:
        return self.buffer[(*self.index, *i)]

    def store(self, value: Any, *i: Any) -> None:
        self.buffer[(*self.index, *i)] = value


def _of_head(buffer: Any, index: Sequence[Any]) -> _OfHead:
    return _OfHead(buffer, tuple(index))


def _buffer(head: _Head, *shape: int) -> Any:
    return script_tirx.buffer_proxy(script_tirx.alloc_buffer(shape, head.dtype, scope="local"))


def _product(
    head: _Head, rows: int, columns: int, length: int, left: Element, right: Element,
    store: Callable[[Any, Any, Any], None],
) -> None:  # fmt: skip
    """store(i, j, sum of left(i, n) * right(n, j) over n < length) for all rows i and columns j."""
    height, width = _tile_rows(rows), tiles.lanes(head.dtype)
    with ExitStack() as opened:
        panel = opened.enter_context(script_tirx.serial(0, columns // width))
        tile = opened.enter_context(script_tirx.serial(0, rows // height))
        sums = _buffer(head, height, width)
        with script_tirx.unroll(0, height) as i, script_tirx.vectorized(0, width) as j:
            sums[i, j] = head.constant(0)
        step, row, lane = script_tirx.serial(0, length), script_tirx.unroll(0, height), script_tirx.vectorized(0, width)
        with step as n, row as i, lane as j:
            sums[i, j] = sums[i, j] + left(tile * height + i, n) * right(n, panel * width + j)
        with script_tirx.unroll(0, height) as i, script_tirx.vectorized(0, width) as j:
            store(tile * height + i, panel * width + j, sums[i, j])


def _panels(head: _Head, source: _OfHead, columns: int) -> Element:
    """The elements (column, row) of the transposed keys or values, stored in panels of adjacent rows."""
    width, half = tiles.lanes(head.dtype), tiles.lanes(head.dtype) // 2
    target = _buffer(head, head.keys // width, columns, width)
    panels, lanes = script_tirx.serial(0, head.keys // half), script_tirx.vectorized(0, half)
    with panels as panel, script_tirx.serial(0, columns) as column, lanes as row:
        target[panel // 2, column, panel % 2 * half + row] = source.load(panel * half + row, column)
    return lambda column, row: target[row // width, column, row % width]


def _scores(head: _Head, first: Expr, q: _OfHead, keys: Element, scores: Any) -> None:
    """Scaled scores of the block of queries that begins with `first`, -inf where a key is masked."""

    def store(row: Expr, column: Expr, value: Expr) -> None:
        value = value * head.constant(head.factor)
        if head.causal:
            value = tirx.Select(first + row >= column, value, head.constant(-math.inf))
        scores[row, column] = value

    left: Element = lambda i, n: q.load(first + i, n)  # noqa: E731
    _product(head, head.block, head.keys, head.features, left, keys, store)


def _reduced(head: _Head, columns: int, start: Any, combine: Callable[[Any, Any], Any], element: Any) -> Any:
    """A buffer of one number: element(column) of all columns, combined lane by lane and then across lanes."""
    width = tiles.lanes(head.dtype) // 2
    lanes, total = _buffer(head, width), _buffer(head, 1)
    with script_tirx.vectorized(0, width) as j:
        lanes[j] = start
    with script_tirx.serial(0, columns // width) as panel, script_tirx.vectorized(0, width) as j:
        lanes[j] = combine(lanes[j], element(panel * width + j))
    total[0] = start
    with script_tirx.unroll(0, width) as j:
        total[0] = combine(total[0], lanes[j])
    return total


def _exponentials(head: _Head, scores: Any, totals: Any, row: Any, store_lse: Callable[[Any], None]) -> None:
    """exp(score - the largest of the row) in place of the scores; their sum, 1 instead of 0, in `totals`."""
    lowest = tirx.min_value(head.dtype)
    maximum = _reduced(head, head.keys, lowest, tirx.max, lambda j: scores[row, j])
    width = tiles.lanes(head.dtype) // 2
    with script_tirx.serial(0, head.keys // width) as panel, script_tirx.vectorized(0, width) as j:
        column = panel * width + j
        scores[row, column] = te_math.exp_nonpositive(scores[row, column] - maximum[0])
    total = _reduced(head, head.keys, head.constant(0), lambda a, b: a + b, lambda j: scores[row, j])
    store_lse(te_math.log(total[0]) + maximum[0])
    totals[row] = tirx.Select(tirx.EQ(total[0], head.constant(0)), head.constant(1), total[0])


def _score_gradients(head: _Head, p: Any, ds: Any, row: Any, lse: Any, y: _OfHead, dy: _OfHead, query: Any) -> None:
    """p = exp(score - lse) in place of the scores, ds = p * (dp - sum(y * dy)) * factor in place of dp."""
    delta = _reduced(
        head, head.values, head.constant(0), lambda a, b: a + b, lambda j: y.load(query, j) * dy.load(query, j)
    )
    offset = _buffer(head, 1)
    # lse is -inf for a row of -inf, whose exponentials are 0.
    offset[0] = tirx.Select(tirx.EQ(lse, head.constant(-math.inf)), head.constant(0), lse)
    width = tiles.lanes(head.dtype) // 2
    with script_tirx.serial(0, head.keys // width) as panel, script_tirx.vectorized(0, width) as j:
        column = panel * width + j
        p[row, column] = te_math.exp(p[row, column] - offset[0])
        ds[row, column] = p[row, column] * (ds[row, column] - delta[0]) * head.constant(head.factor)
