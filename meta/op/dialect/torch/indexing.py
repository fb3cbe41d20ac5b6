"""Slices and gathered elements by ATen, for complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import complex_only

_Ints = tuple[int, ...]


def _sliced(torch: Any, x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> tuple[Any, ...]:
    """An index for each axis, in place of slices, which ATen takes with positive steps only."""
    out: list[Any] = []
    for axis, (first, last, step) in enumerate(zip(begin, end, strides or (1,) * len(begin), strict=True)):
        positions = torch.arange(*slice(first, last, step).indices(x.shape[axis]), device=x.device)
        out.append(positions.view(-1, *(1,) * (len(begin) - 1 - axis)))
    return tuple(out)


def strided_slice(torch: Any) -> Callable[..., Any]:
    def run(x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
        if all(step > 0 for step in strides):
            return x[tuple(slice(*bounds) for bounds in zip(begin, end, strides or (1,) * len(begin), strict=True))]
        return x[_sliced(torch, x, begin, end, strides)]

    return run


def strided_slice_dx(torch: Any) -> Callable[..., Any]:
    def run(dy: Any, shape: _Ints, *bounds: _Ints) -> Any:
        out = dy.new_zeros(shape)
        out[_sliced(torch, out, *bounds) or ...] = dy
        return out

    return run


def strided_set(torch: Any) -> Callable[..., Any]:
    def run(x: Any, v: Any, *bounds: _Ints) -> Any:
        out = x.clone()
        out[_sliced(torch, out, *bounds) or ...] = v
        return out

    return run


complex_only({"strided_set": strided_set, "strided_slice": strided_slice, "strided_slice_dx": strided_slice_dx})
