"""Computes whose steps depend on each other, as hand-written loops: running sums along an axis, powers of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.te.loops import independent

Index = tuple[Any, ...]


def scan(
    x: Any,
    axis: int,
    exclusive: bool,
    reverse: bool,
    combine: Callable[[Any, Any], Any] = operator.add,
    start: float = 0,
) -> Any:
    """For each element, all elements of x up to it along an axis, combined (by default, added), in the dtype of x.

    Floats are combined in float64, as in torch, since the errors of float32 grow with the length.

    exclusive: combine the elements before it only.  reverse: start at the end of the axis.
    start: the result for no elements."""
    dtype = str(x.dtype)
    if not x.shape:
        return te.compute((), lambda: tirx.const(start, dtype) if exclusive else x(), "scan")
    length, wide = x.shape[axis], "float64" if dtypes.is_float(dtype) else dtype

    def row(index: Index, buffers: list[Any]) -> None:
        read, write = buffers
        total = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), wide, scope="local"))
        total[0] = tirx.const(start, wide)
        with script_tirx.serial(0, length) as step:
            element = (*index[:axis], length - _int(1) - step if reverse else step, *index[axis:])
            if exclusive:
                write[element] = total[0].astype(dtype)
            total[0] = combine(total[0], read[element].astype(wide))
            if not exclusive:
                write[element] = total[0].astype(dtype)

    others = [*x.shape[:axis], *x.shape[axis + 1 :]]
    return te.extern([x.shape], [x], nest(others, row), dtype=dtype, name="scan")


def running_positions(keys: Any, axis: int, largest: bool) -> Any:
    """For each element of `keys`, integers, the position of the largest (or smallest) up to it along an axis, as int64:
    the last of equal ones."""
    if not keys.shape:
        return te.compute((), lambda: _int(0), "running")

    def row(index: Index, buffers: list[Any]) -> None:
        read, write = buffers
        best = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), "int64", scope="local"))
        best[0] = _int(0)
        with script_tirx.serial(0, keys.shape[axis]) as step:
            element = (*index[:axis], step, *index[axis:])
            key, best_key = read[element], read[(*index[:axis], best[0], *index[axis:])]
            with script_tirx.If(key >= best_key if largest else key <= best_key), script_tirx.Then():
                best[0] = step
            write[element] = best[0]

    others = [*keys.shape[:axis], *keys.shape[axis + 1 :]]
    return te.extern([keys.shape], [keys], nest(others, row), dtype="int64", name="running")


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
        square = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), dtype, scope="local"))
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

    def size(x: Any) -> Any:
        return x if dtype.startswith("u") else tirx.Select(x < zero, zero - x, x)

    def element(index: Index, buffers: list[Any]) -> None:
        first, second, result = buffers
        position = index or 0
        state = script_tirx.buffer_proxy(script_tirx.alloc_buffer((3,), dtype, scope="local"))
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


def _int(value: int) -> Any:
    return tirx.const(value, "int64")
