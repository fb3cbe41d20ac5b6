"""Indices of open axes: positions, and slices whose bounds are symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import meta
from meta._generated.methods import Tensor
from meta.dim import WHOLE, Dim, SymDim, maximum
from meta.eager.slices import bound_int
from meta.op import rules


def with_positions(x: Tensor, items: Sequence[Any]) -> tuple[Any, list[Any]]:
    """x with the elements that symbolic positions and bounds pick, and the other items of the index."""
    rest: list[Any] = []
    axis = 0
    for item in items:
        if item is None:
            rest.append(item)
        elif isinstance(item, slice):
            part = cast("Any", item)
            is_open = isinstance(part.start, SymDim) or isinstance(part.stop, SymDim)
            x = _taken(x, axis, part.start, part.stop, part.step) if is_open else x
            rest.append(slice(None) if is_open else part)
            axis += 1
        elif isinstance(x.shape[axis], SymDim) or isinstance(item, SymDim):
            x = _picked(x, axis, item)
        else:
            rest.append(item)
            axis += 1
    return x, rest


def _picked(x: Tensor, axis: int, position: Dim) -> Any:
    """The elements at one position of an axis: the first of a slice, which has none if the position is out of range."""
    if isinstance(position, int):
        end, zeros = WHOLE if position == -1 else position + 1, (0,) * axis
        part = meta.strided_slice(x, (*zeros, position), (*(WHOLE,) * axis, end), (*(1,) * axis, 1))
    else:
        first = rules.from_front(position, x.shape[axis])
        part = _taken(x, axis, first, first + 1, None)
    return meta.take(part, meta.full((), 0, "int64", x.device), axis, "clip")


def _taken(x: Any, axis: int, start: Any, stop: Any, step: Any) -> Any:
    """The elements of a slice of an axis with symbolic bounds."""
    stride = 1 if step is None else bound_int(step)
    ends = (WHOLE, -WHOLE) if stride < 0 else (0, WHOLE)
    size = x.shape[axis]
    bounds = [end if bound is None else bound for bound, end in zip((start, stop), ends, strict=True)]
    first, last = (rules.clipped(bound, size, stride) for bound in bounds)
    distance = last - first if stride > 0 else first - last
    count = maximum((distance + abs(stride) - 1) // abs(stride), 0)
    return meta.take(x, meta.arange(0, count, 1, "int64", x.device) * stride + first, axis, "clip")
