"""What takes steps that depend on each other, as loops: running sums along an axis, and powers of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from meta.backend.tvm.adapter import IRBuilder, script_tirx, te, tirx
from meta.backend.tvm.te.loops import independent

Index = tuple[Any, ...]


def scan(
    x: Any, axis: int, exclusive: bool, reverse: bool, combine: Callable[[Any, Any], Any] = operator.add, start: int = 0
) -> Any:
    """The elements of x up to each (or before it), combined (by default, added up) from the front or from the end, in
    the dtype of x; `start` is what no elements combine to."""
    dtype = str(x.dtype)
    nothing = tirx.const(start, dtype)
    if not x.shape:
        return te.compute((), lambda: nothing if exclusive else x(), "scan")
    length = x.shape[axis]

    def row(index: Index, buffers: list[Any]) -> None:
        read, write = buffers
        with script_tirx.serial(0, length) as step:

            def at(k: Any) -> Index:
                return (*index[:axis], length - _int(1) - k if reverse else k, *index[axis:])

            last = tirx.Max(step - _int(1), _int(0))
            total = tirx.if_then_else(step > _int(0), write[at(last)], nothing)
            if exclusive:
                write[at(step)] = tirx.if_then_else(step > _int(0), combine(total, read[at(last)]), nothing)
            else:
                write[at(step)] = combine(total, read[at(step)])

    others = [*x.shape[:axis], *x.shape[axis + 1 :]]
    return te.extern([x.shape], [x], nest(others, row), dtype=dtype, name="scan")


def squarings(base: Any, exponent: Any, bits: int) -> Any:
    """base ** exponent of integer tensors of one shape, from the lowest `bits` bits of the exponent."""
    dtype = str(base.dtype)
    one = tirx.const(1, dtype)

    def element(index: Index, buffers: list[Any]) -> None:
        start, power, result = buffers
        at = index or 0
        square = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), dtype, scope="local"))
        result[at] = one
        square[0] = start[at]
        with script_tirx.serial(0, bits) as bit:
            used = tirx.EQ((power[at] >> bit.astype(dtype)) & one, one)
            result[at] = result[at] * tirx.Select(used, square[0], one)
            square[0] = square[0] * square[0]

    return te.extern([base.shape], [base, exponent], nest(base.shape, element), dtype=dtype, name="squarings")


def nest(shape: Any, body: Callable[[Index, list[Any]], None]) -> Callable[[Any, Any], Any]:
    """The body of an extern: loops over `shape`, the first in parallel, around `body(index, buffers)`."""

    def loops(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs)]
            with ExitStack() as opened:
                kinds = [script_tirx.parallel, *[independent] * len(shape)]
                index = tuple(opened.enter_context(kind(0, size)) for kind, size in zip(kinds, shape, strict=False))
                if not index:
                    opened.enter_context(independent(0, 1))  # to hold a body of several statements
                body(index, buffers)
        return builder.get()

    return loops


def _int(value: int) -> Any:
    return tirx.const(value, "int64")
