"""Conversions of arguments that rows share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.device import Device
from meta.dim import WHOLE, Dim
from meta.dtype import Number
from meta.errors import ArgumentError
from meta.schema._dsl import TensorLike

Operand = Tensor | Number | Dim
"""An operand that may be a number: graphs write 2 - x."""


def is_tensor(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, TensorLike)


def scaled(x: Operand, factor: Operand) -> Operand:
    """x times a number; x itself for 1. Integers of unsigned dtypes wrap around."""
    if isinstance(factor, int) and factor < 0 and is_tensor(x) and dtypes.is_unsigned(x.dtype):
        factor %= 2 ** (8 * dtypes.itemsize(x.dtype))
    return x if isinstance(factor, (int, float)) and factor == 1 else meta.multiply(x, factor)


def scaled_sum(combine: Callable[[Any, Any], Any], x: Operand, y: Operand, factor: Operand) -> Any:
    """The sum or difference of x and `factor` times y, which is rounded once for halves."""
    halves = {t.dtype for t in (x, y) if is_tensor(t)}
    if (isinstance(factor, (int, float)) and factor == 1) or len(halves) > 1 or not halves.issubset(dtypes.HALVES):
        return combine(x, scaled(y, factor))
    wide = [meta.cast(t, "float32") if is_tensor(t) else t for t in (x, y)]
    return meta.cast(combine(wide[0], scaled(wide[1], factor)), halves.pop())


def in_dtype(x: Tensor, dtype: str | None) -> Any:
    """x in `dtype`; x itself for None."""
    return x if dtype is None or dtypes.canonical(dtype) == x.dtype else meta.cast(x, dtype)


def axes(dim: int | Sequence[int] | None) -> int | Sequence[int] | None:
    """ATen's axes of a reduction: an empty list means all of them."""
    return None if dim is None or (isinstance(dim, (list, tuple)) and not dim) else dim


def position(dim: int, rank: int) -> int:
    """An axis counted from 0. Raises ArgumentError outside of [-rank, rank); a 0-d tensor has the axis 0."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise ArgumentError("aten", f"the axis is {dim}", f"one in [-{rank}, {rank - 1}]")
    return dim % rank


def per_axis(value: int | Sequence[int], count: int) -> tuple[Any, ...]:
    """One value for each of `count` spatial axes: ATen allows a single one for all."""
    values: Sequence[Any] = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(values) * count if len(values) == 1 else tuple(values)


def bounds(size: Dim, start: Dim | None, end: Dim | None) -> tuple[Any, Any]:
    """First and last position of a slice of an axis when its size or a bound is symbolic. The bounds are taken to lie
    inside of the axis: torch's programs hold for the sizes for which they do, by their guards and constraints."""
    first = 0 if start is None else start
    # ATen writes 2**63 - 1 for the end of an axis.
    last = size if end is None or (isinstance(end, int) and end >= WHOLE) else end
    return tuple(size + b if isinstance(b, int) and b < 0 else b for b in (first, last))  # type: ignore[return-value]


def sliced_places(first: Any, last: Any, step: int, device: Device | str) -> Any:
    """The positions of a slice, int64."""
    places = meta.arange(0, (last - first + step - 1) // step, 1, "int64", device)
    places = places if step == 1 else places * step
    return places if isinstance(first, int) and first == 0 else places + first
