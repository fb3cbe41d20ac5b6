"""Index arithmetic that allows empty axes: TVM rejects a division by a constant 0."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import tirx


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
