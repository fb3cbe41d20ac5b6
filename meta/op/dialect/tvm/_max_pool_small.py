"""Gradient of max pooling over small regular windows on a CPU, as loops of vector operations.

A plane (an image of one channel) at a time: the places of the maxima of all its windows are found once, then every
element of dx adds up the windows that chose it. Element r of window i is at r * dilation = a + j * stride behind the
start of the window, so that with positions counted as stride * m + a, and kept apart by a (their phase), all that is
read and written lies side by side: window m - j has its element r at the m-th position of phase a.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from math import inf, prod
from typing import Any

from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.te.select import select
from meta.op.dialect.tvm import _planes as planes
from meta.op.dialect.tvm._planes import PLACE, Axes, Load, Plane
from meta.op.window import Windows

_MOST_ELEMENTS = 64
"""Of a window, and phases: the operations on each are written out."""
_MOST_STRIDE = 8


def fits(axes: Sequence[Windows]) -> bool:
    """Whether the windows are regular and small, and none is empty."""
    regular = axes[-1].stride <= _MOST_STRIDE and not any(axis.adaptive for axis in axes)
    small = max(prod(axis.kernel for axis in axes), prod(axis.stride for axis in axes)) <= _MOST_ELEMENTS
    return regular and small and not any(_some_empty(axis) for axis in axes)


def _some_empty(axis: Windows) -> bool:
    return any(not any(all(axis.inside(i, r)) for r in range(axis.kernel)) for i in range(axis.count))


def small_windows(plane: Plane) -> None:
    """Write dx for windows that `fits` accepts."""
    apart = all(a.before == 0 and _back(a) == 0 and a.size == a.stride * a.count for a in plane.axes)
    (_separate if apart else _overlapping)(plane)


# --- windows that do not overlap and leave nothing over --------------------------------------------------------------


def _separate(plane: Plane) -> None:
    """Every element belongs to one window, so that places need not be kept."""
    *outer, last = plane.axes
    for start, lanes, count in planes.chunks(last.count, plane.lanes):
        with ExitStack() as opened:
            *i, chunk = planes.loops(opened, [*(a.count for a in outer), count])
            _write_separate(plane, i, start + chunk * lanes, lanes)


def _write_separate(plane: Plane, i: Sequence[Any], w: Any, lanes: int) -> None:
    """Write dx of as many windows of row i, from w on."""
    *outer, last = plane.axes
    best, place = planes.local([lanes], plane.dtype), planes.local([lanes], PLACE)

    def elements() -> Iterator[tuple[Any, Any]]:
        number = 0
        for r in product(*(range(a.kernel) for a in outer)):
            row = [q * a.stride + k * a.dilation for q, k, a in zip(i, r, outer, strict=True)]
            parts = _taken_apart(plane.x, [*row, w * last.stride], last.stride, lanes)
            for k in range(last.kernel):
                yield parts[k * last.dilation], planes.same(number, PLACE, lanes)
                number += 1

    planes.choose(elements(), best, place, lanes)
    share, chosen = script_tirx.bind(plane.dy(*i, w, lanes=lanes)), place[planes.ramp(0, lanes)]
    phases = _by_phase(plane.axes)
    for phase in product(*(range(a.stride) for a in outer)):
        at = [q * a.stride + p for q, p, a in zip(i, phase, outer, strict=True)]
        found = ([(chosen, share, r) for r, _ in phases.get((*phase, p), [])] for p in range(last.stride))
        _write_strided(plane, at, w, [_sum(plane, some, lanes) for some in found], lanes)


# --- others ----------------------------------------------------------------------------------------------------------


def _overlapping(plane: Plane) -> None:
    """Places and shares are kept with a margin: of no place, so that a position need not ask which windows exist."""
    *outer, last = plane.axes
    lanes = min(plane.lanes, max(1 << (_steps(last) - 1).bit_length(), 2))
    width = -(-_steps(last) // lanes) * lanes
    shape = [*(_back(a) + _steps(a) for a in outer), _back(last) + width + lanes]
    x = _padded(plane, width + _back(last), lanes)
    places, shares = planes.local(shape, PLACE), planes.local(shape, plane.dtype)
    planes.fill(places, shape, -1, PLACE, plane.lanes)
    _find(plane, x, places, shares, lanes)
    phases = _by_phase(plane.axes)

    def sums(m: Sequence[Any], phase: Sequence[int], w: Any, lanes: int) -> list[Any]:
        """dx at the positions w * stride + p of a row, for each p."""
        parts: list[Any] = []
        for p in range(last.stride):
            skipped, inner = divmod(p + last.before, last.stride)
            found: list[tuple[Any, Any, int]] = []
            for r, j in phases.get((*phase, inner), []):
                at = [q + _back(a) - k for q, a, k in zip((*m, w + skipped), plane.axes, j, strict=True)]
                window = (*at[:-1], planes.ramp(at[-1], lanes))
                found.append((places[window], shares[window], r))
            parts.append(_sum(plane, found, lanes))
        return parts

    with ExitStack() as opened:
        m = planes.loops(opened, [_steps(a) for a in outer])
        for phase in product(*(range(a.stride) for a in outer)):
            at = [q * a.stride + p - a.before for q, p, a in zip(m, phase, outer, strict=True)]
            with script_tirx.If(_exists(at, outer)), script_tirx.Then():
                _write_row(plane, at, functools.partial(sums, m, phase))


def _write_row(plane: Plane, at: Sequence[Any], sums: Callable[[Any, int], list[Any]]) -> None:
    """Write a row of dx from `sums(w, lanes)`, which is dx at w * stride + p for each p, for as many w."""
    last = plane.axes[-1]
    for start, lanes, count in planes.chunks(last.size // last.stride, plane.lanes):
        with script_tirx.serial(0, count) as chunk:
            w = start + chunk * lanes
            _write_strided(plane, at, w, sums(w, lanes), lanes)
    whole = last.size // last.stride
    for p, part in enumerate(sums(whole, 1)[: last.size % last.stride]):
        plane.write(*at, whole * last.stride + p, value=part)


def _write_strided(plane: Plane, at: Sequence[Any], w: Any, parts: Sequence[Any], lanes: int) -> None:
    """Write dx at the positions w * stride + p of a row, for each part p."""
    stride = len(parts)
    if lanes > 1:
        plane.write(*at, w * stride, value=_put_together(parts, lanes), lanes=lanes * stride)
        return
    for p, part in enumerate(parts):
        plane.write(*at, w * stride + p, value=part)


def _exists(at: Sequence[Any], axes: Sequence[Windows]) -> Any:
    return tirx.all(*(c for p, a in zip(at, axes, strict=True) for c in (p >= 0, p < a.size)))


def _padded(plane: Plane, width: int, lanes: int) -> Any:
    """The plane with its padding, and the phases of the last axis apart: x[d, h, phase, m]."""
    *outer, last = plane.axes
    shape = [*(_reach(a) for a in outer), last.stride, width]
    x = planes.local(shape, plane.dtype)
    if any(a.before or _reach(a) > a.size for a in plane.axes):
        planes.fill(x, shape, -inf, plane.dtype, plane.lanes)
    edge = last.before + last.size
    first, end = -(-last.before // last.stride), edge // last.stride
    with ExitStack() as opened:
        q = planes.loops(opened, [min(a.size, _reach(a) - a.before) for a in outer])
        at = [p + a.before for p, a in zip(q, outer, strict=True)]
        for start, some, count in planes.chunks(max(end - first, 0), lanes):
            with script_tirx.serial(0, count) as chunk:
                m = first + start + chunk * some
                parts = _taken_apart(plane.x, [*q, m * last.stride - last.before], last.stride, some)
                for phase, part in enumerate(parts):
                    x[(*at, phase, planes.ramp(m, some))] = part
        whole = range(first * last.stride, end * last.stride)
        for p in range(last.before, edge):
            if p not in whole:
                x[(*at, p % last.stride, p // last.stride)] = plane.x(*q, p - last.before)
    return x


def _find(plane: Plane, x: Any, places: Any, shares: Any, lanes: int) -> None:
    """Fill in the place of the maximum of every window, and dy."""
    deep, high, last = plane.axes
    width = -(-last.count // lanes) * lanes
    row_best, row_place = _rows(plane, x, width, lanes)
    best, place = planes.local([lanes], plane.dtype), planes.local([lanes], PLACE)

    def rows(i: Any, j: Any, w: Any) -> Iterator[tuple[Any, Any]]:
        """The maxima of the rows of windows (i, j, w), and their numbers among all elements of the window."""
        for d, h in product(range(deep.kernel), range(high.kernel)):
            row = (i * deep.stride + d * deep.dilation, j * high.stride + h * high.dilation, planes.ramp(w, lanes))
            above = tirx.const(d * high.kernel + h, PLACE)
            if d == h == 0:
                above = _first(deep, i, 1) * high.kernel + _first(high, j, 1)
            yield row_best[row], row_place[row] + planes.spread(above * last.kernel, lanes)

    with ExitStack() as opened:
        i, j = planes.loops(opened, [deep.count, high.count])
        at = (i + _back(deep), j + _back(high))
        with script_tirx.serial(0, width // lanes) as chunk:
            planes.choose(rows(i, j, chunk * lanes), best, place, lanes)
            places[(*at, planes.ramp(chunk * lanes + _back(last), lanes))] = place[planes.ramp(0, lanes)]
        # What was found there are no windows.
        places[(*at, planes.ramp(last.count + _back(last), lanes))] = planes.same(-1, PLACE, lanes)
        for start, some, count in planes.chunks(last.count, lanes):
            with script_tirx.serial(0, count) as chunk:
                w = start + chunk * some
                shares[(*at, planes.ramp(w + _back(last), some))] = plane.dy(i, j, w, lanes=some)


def _rows(plane: Plane, x: Any, width: int, lanes: int) -> tuple[Any, Any]:
    """The maxima of the rows of windows, which windows one above the other share, and their numbers within the row."""
    *outer, last = plane.axes
    shape = [*(_reach(a) for a in outer), width]
    row_best, row_place = planes.local(shape, plane.dtype), planes.local(shape, PLACE)
    best, place = planes.local([lanes], plane.dtype), planes.local([lanes], PLACE)

    def elements(q: Sequence[Any], w: Any) -> Iterator[tuple[Any, Any]]:
        for r in range(last.kernel):
            j, phase = divmod(r * last.dilation, last.stride)
            number = planes.same(r, PLACE, lanes) if r else _first(last, planes.ramp(w, lanes), lanes)
            yield x[(*q, phase, planes.ramp(w + j, lanes))], number

    with ExitStack() as opened:
        *q, chunk = planes.loops(opened, [*shape[:2], width // lanes])
        w, every = chunk * lanes, planes.ramp(0, lanes)
        planes.choose(elements(q, w), best, place, lanes)
        row_best[(*q, planes.ramp(w, lanes))] = best[every]
        row_place[(*q, planes.ramp(w, lanes))] = place[every]
    return row_best, row_place


def _first(axis: Windows, i: Any, lanes: int) -> Any:
    """The first element along an axis of windows i that is not in the padding: it is chosen if all are -inf."""
    if not axis.before:
        return planes.same(0, PLACE, lanes)
    gap = tirx.max((axis.before + axis.dilation - 1) - i * axis.stride, 0)
    return planes.cast(tirx.floordiv(gap, axis.dilation) if axis.dilation > 1 else gap, PLACE, lanes)


# --- operations on vectors -------------------------------------------------------------------------------------------


def _sum(plane: Plane, found: Iterable[tuple[Any, Any, int]], lanes: int) -> Any:
    """The sum of the shares of those places that are the number beside them."""
    zero = planes.same(0, plane.dtype, lanes)
    total: Any = None
    for place, share, r in found:
        part = select(tirx.EQ(place, planes.same(r, PLACE, lanes)), share, zero)
        total = part if total is None else total + part
    return zero if total is None else total


def _taken_apart(load: Load, at: Sequence[Any], stride: int, lanes: int) -> list[Any]:
    """Vectors of every stride-th element, from each of the first ones."""
    if stride == 1:
        return [load(*at, lanes=lanes)]
    whole = script_tirx.bind(load(*at, lanes=lanes * stride))
    return [tirx.Shuffle([whole], list(range(p, lanes * stride, stride))) for p in range(stride)]


def _put_together(parts: Sequence[Any], lanes: int) -> Any:
    """The vector that would be taken apart into these."""
    if len(parts) == 1:
        return parts[0]
    return tirx.Shuffle(list(parts), [p * lanes + k for k in range(lanes) for p in range(len(parts))])


# --- numbers ---------------------------------------------------------------------------------------------------------


def _by_phase(axes: Axes) -> dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
    """For each phase the elements of a window that are of it, by number, and how many strides behind its start."""
    found: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for number, r in enumerate(product(*(range(a.kernel) for a in axes))):
        behind = [divmod(k * a.dilation, a.stride) for k, a in zip(r, axes, strict=True)]
        found.setdefault(tuple(p for _, p in behind), []).append((number, tuple(j for j, _ in behind)))
    return found


def _back(a: Windows) -> int:
    """By how many strides the last element of a window is behind its start."""
    return (a.kernel - 1) * a.dilation // a.stride


def _steps(a: Windows) -> int:
    """Strides from the start of the padding to the end of the plane."""
    return -(-(a.before + a.size) // a.stride)


def _reach(a: Windows) -> int:
    """How many positions the windows reach over, with padding."""
    return (a.count - 1) * a.stride + (a.kernel - 1) * a.dilation + 1
