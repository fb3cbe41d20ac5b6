"""Integers, slices and Nones of an index as attributes of strided_slice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from meta.dim import WHOLE, Dim, size_error
from meta.errors import PositionError, value_text
from meta.op import rules
from meta.records import record


@record
class Slices:
    """A basic index as attributes of strided_slice, and the shapes on the way.

    begin, end, strides: one of each an axis.  full: the shape of the slice.  shape: without the axes that integers
    pick and with those that None adds.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...]
    full: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    @property
    def whole(self) -> bool:
        """Whether every element is in it, in order."""
        return all(b == 0 and e == WHOLE and s == 1 for b, e, s in zip(self.begin, self.end, self.strides, strict=True))


def slices(shape: Sequence[Dim], items: Sequence[Any]) -> Slices:
    """Integers, slices and Nones as attributes of strided_slice."""
    sizes, axes = iter(shape), count()
    bounds: list[tuple[int, int, int]] = []
    full: list[Dim] = []
    out: list[Dim] = []
    for item in items:
        if item is None:
            out.append(1)
            continue
        size, axis = next(sizes), next(axes)
        begin, end, step, length = bound(item, size, axis)
        bounds.append((begin, end, step))
        full.append(length)
        if isinstance(item, slice):
            out.append(length)
    begins, ends, steps = zip(*bounds, strict=True) if bounds else ((), (), ())
    return Slices(begins, ends, steps, tuple(full), tuple(out))


def bound(item: Any, size: Dim, axis: int) -> tuple[int, int, int, Dim]:
    """Begin, end, step and number of elements of one axis."""
    if isinstance(item, slice):
        return _slice_bound(item, size)
    if not isinstance(size, int):
        raise size_error("index", size, "a static size")
    position = item.__index__()
    if not -size <= position < size:
        raise PositionError(
            "index",
            f"{value_text(position)} is out of range for axis {axis} of size {size}",
            f"{-size} to {size - 1}" if size else "no index, as the axis is empty",
        )
    position %= size
    return position, position + 1, 1, 1


def _slice_bound(item: Any, size: Dim) -> tuple[int, int, int, Dim]:
    step = 1 if item.step is None else bound_int(item.step)
    if step == 0:
        raise PositionError("index", "a slice with step 0", "steps other than 0")
    if item.start is None and item.stop is None and step == 1:
        return 0, WHOLE, 1, size
    if item.start in (None, 0) and item.stop is size and step == 1:
        return 0, WHOLE, 1, size
    first, last = (None if part is None else bound_int(part) for part in (item.start, item.stop))
    if not isinstance(size, int):
        begin = first if first is not None else 0 if step > 0 else WHOLE
        end = last if last is not None else WHOLE if step > 0 else -WHOLE
        return begin, end, step, rules.slice_length(begin, end, step, size)
    begin, end, step = slice(first, last, step).indices(size)
    length = len(range(begin, end, step))
    if length == 0:
        return 0, 0, 1, 0
    if length == size and step == 1:
        return 0, WHOLE, 1, size
    return begin, end if end >= 0 else -size - 1, step, length


def bound_int(part: Any) -> int:
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        raise PositionError("index", f"a slice with the bound {value_text(part)}", "integers and None")
    return part.__index__()
