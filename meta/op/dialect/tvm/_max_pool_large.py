"""Gradient of max pooling over any windows on a CPU: those of adaptive pooling, and large ones.

A plane at a time. For a row of windows, the maximum of every column over the rows that they cover is found by vectors,
then every window's maximum among its columns. dy is added at its place.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import inf
from typing import Any

from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.te.select import select
from meta.op.dialect.tvm._planes import PLACE, Plane, chunks, fill, local, loops, ramp, spread
from meta.op.window import Windows


def large_windows(plane: Plane) -> None:
    """Write dx, for any windows."""
    deep, high, last = plane.axes
    shape = [deep.size, high.size, last.size]
    total = local(shape, plane.dtype)
    best, rows = local([last.size], plane.dtype), local([last.size], PLACE)
    fill(total, shape, 0, plane.dtype, plane.lanes)
    with ExitStack() as opened:
        i = loops(opened, [deep.count, high.count])
        (d, many_d), (h, many_h) = _covered(deep, i[0]), _covered(high, i[1])
        _columns(plane, (d, h), (many_d, many_h), best, rows)
        with script_tirx.serial(0, last.count) as w:
            first, many = _covered(last, w)
            with script_tirx.If(tirx.all(many_d > 0, many_h > 0, many > 0)), script_tirx.Then():
                row, column = _largest(plane, first, many, best, rows)
                at = (tirx.floordiv(row, high.size), tirx.floormod(row, high.size), column)
                total[at] = total[at] + plane.dy(*i, w)
    for start, lanes, count in chunks(last.size, plane.lanes):
        with ExitStack() as opened:
            *at, chunk = loops(opened, [*shape[:2], count])
            w = start + chunk * lanes
            plane.write(*at, w, value=total[(*at, ramp(w, lanes))], lanes=lanes)


def _covered(axis: Windows, i: Any) -> tuple[Any, Any]:
    """The first position that window i covers, and how many it does.

    They are read back from memory: the analysis of TVM divides by zero over indices like 2 - (4 - i) % 3."""
    start, found = axis.start(i), local([2], "int32")
    if axis.adaptive:
        found[0] = start
        found[1] = tirx.floordiv((i + 1) * axis.size + axis.count - 1, axis.count) - start
    else:
        skipped = tirx.max(tirx.floordiv(axis.dilation - 1 - start, axis.dilation), 0)
        end = tirx.min(tirx.floordiv(axis.size - start + axis.dilation - 1, axis.dilation), axis.kernel)
        found[0] = start + skipped * axis.dilation
        found[1] = end - skipped
    return found[0], found[1]


def _columns(plane: Plane, first: tuple[Any, Any], many: tuple[Any, Any], best: Any, rows: Any) -> None:
    """Leave in `best` the maximum of every column over some rows, and in `rows` the first that has it (of several that
    are no number the last)."""
    deep, high, last = plane.axes
    fill(best, [last.size], -inf, plane.dtype, plane.lanes)
    for start, lanes, count in chunks(last.size, plane.lanes):
        with script_tirx.serial(0, count) as chunk:
            initial = (first[0] * high.size + first[1]).astype(PLACE)
            rows[ramp(start + chunk * lanes, lanes)] = spread(initial, lanes)
    with ExitStack() as opened:
        d, h = (
            begin + r * axis.dilation
            for begin, r, axis in zip(first, (_loop(opened, size) for size in many), (deep, high), strict=True)
        )
        number = (d * high.size + h).astype(PLACE)
        for start, lanes, count in chunks(last.size, plane.lanes):
            with script_tirx.serial(0, count) as chunk:
                w = ramp(start + chunk * lanes, lanes)
                value = script_tirx.bind(plane.x(d, h, start + chunk * lanes, lanes=lanes))
                larger = tirx.any(value > best[w], tirx.isnan(value))
                rows[w] = select(larger, spread(number, lanes), rows[w])
                best[w] = select(larger, value, best[w])


def _loop(opened: ExitStack, size: Any) -> Any:
    return opened.enter_context(script_tirx.serial(0, size))


def _largest(plane: Plane, first: Any, many: Any, best: Any, rows: Any) -> tuple[Any, Any]:
    """The place (row, column) of the maximum among columns whose maxima are known: of equal ones the first, row by row,
    of several that are no number the last."""
    value, row, column = local([1], plane.dtype), local([1], PLACE), local([1], "int32")
    value[0], row[0], column[0] = best[first], rows[first], first
    step = plane.axes[-1].dilation
    with script_tirx.serial(0, many - 1) as k:
        at = first + (k + 1) * step
        other = script_tirx.bind(best[at])
        ahead = tirx.all(tirx.EQ(other, value[0]), rows[at] < row[0])
        later = tirx.any(tirx.Not(tirx.isnan(value[0])), rows[at] >= row[0])
        with script_tirx.If(tirx.any(other > value[0], ahead, tirx.all(tirx.isnan(other), later))), script_tirx.Then():
            value[0] = other
            row[0] = rows[at]
            column[0] = at
    return row[0], column[0]
