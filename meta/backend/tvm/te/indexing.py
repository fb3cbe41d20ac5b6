"""Index arithmetic that allows empty axes (TVM rejects a division by a constant 0), and positions that tensors give."""

from __future__ import annotations

import math
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.te.elementwise import as_int64
from meta.backend.tvm.workarounds.exact import constant
from meta.records import record


def unflattened(offset: Any, shape: Any) -> list[Any]:
    """The index, axis by axis, of the element at `offset` of a row-major tensor."""
    index: list[Any] = []
    for size in reversed(tuple(shape)[1:]):
        index.append(modulo(offset, size))
        offset = offset if is_zero(size) else tirx.floordiv(offset, size)
    return [offset, *reversed(index)] if len(shape) else []


def modulo(offset: Any, size: Any) -> Any:
    """`offset` modulo an extent; `offset` itself for an empty axis, which has no elements to read."""
    return offset if is_zero(size) else tirx.floormod(offset, size)


def is_zero(extent: Any) -> bool:
    return getattr(extent, "value", extent) == 0


@record
class Located:
    """An index, and the condition under which it may be read or written; None if it always may."""

    index: tuple[Any, ...]
    inside: Any = None


def locate(position: Expr, size: Any, checked: bool, mode: str = "") -> Located:
    """A position in an axis. mode: "" for positions from 0, "raise" for positions that may also count from the end;
    "clip" and "wrap" move positions inside.

    checked: the kernel has checked the positions. They are clipped all the same, as they may be in memory that another
    thread writes, which costs less than a condition."""
    unsigned = dtypes.is_unsigned(dtype_of(position))
    if mode == "wrap" and dtype_of(position) == "uint64":
        return Located((modulo(position, size.astype("uint64")).astype("int64"),))
    position, zero = as_int64(position), tirx.const(0, "int64")
    if mode == "wrap":
        return Located((modulo(position, size),))
    if mode == "raise" and not unsigned:
        position = tirx.Select(position < zero, position + size, position)
    if checked or mode == "clip":
        return Located((tirx.max(tirx.min(position, size - 1), zero),))
    return Located((position,), tirx.all(position >= zero, position < size))


def joined(*parts: Any) -> Located:
    """The index of several parts: Located ones, and expressions."""
    index: list[Any] = []
    conditions: list[Any] = []
    for part in parts:
        index.extend(part.index if isinstance(part, Located) else (part,))
        if isinstance(part, Located) and part.inside is not None:
            conditions.append(part.inside)
    return Located(tuple(index), tirx.all(*conditions) if conditions else None)


def read(x: Tensor, place: Located) -> Any:
    """The element at a place; of one outside, NaN, the lowest integer or False."""
    value = x(*place.index)
    return value if place.inside is None else tirx.if_then_else(place.inside, value, missing(str(x.dtype)))


def missing(dtype: str) -> Any:
    """The value of reads out of range."""
    if dtypes.is_float(dtype):
        return constant(math.nan, dtype)
    return tirx.const(0 if dtype == "bool" else dtypes.int_range(dtype)[0], dtype)
