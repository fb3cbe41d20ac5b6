"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import is_tensor

ROWS: Rows = {}


@into(ROWS)
def sort(self: Any, dim: Any = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    order = meta.argsort(self, dim, descending)
    return (meta.gather(self, dim, order) if self.ndim else meta.copy(self)), order


@into(ROWS)
def argsort(self: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    return meta.argsort(self, dim, descending)


@into(ROWS)
def msort(self: Any) -> Any:
    return meta.sort(self, 0)


@into(ROWS)
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return meta.topk(self, k, dim, largest)


@into(ROWS)
def searchsorted(
    sorted_sequence: Any, self: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError("searchsorted", f"side is {side!r}, right {right}", "'left' or 'right', without `right`")
    sequence = sorted_sequence if sorter is None else meta.gather(sorted_sequence, -1, sorter)
    values = self if is_tensor(self) else meta.full((), self, sequence.dtype, sequence.device)
    places = meta.searchsorted(sequence, values, right or side == "right")
    return meta.cast(places, "int32" if out_int32 else "int64")


@into(ROWS)
def bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    if boundaries.ndim != 1:
        raise ArgumentError("bucketize", f"boundaries has {boundaries.ndim} axes", "1")
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)
