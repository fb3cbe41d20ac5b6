"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, into

ROWS: Rows = {
    "bincount": "bincount", "histc": "histc", "kthvalue": "kthvalue", "median": "median", "mode": "mode",
    "nanmedian": "nanmedian", "nanquantile": "nanquantile", "quantile": "quantile",
}  # fmt: skip


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
    dtype = "int32" if out_int32 else "int64"
    return meta.searchsorted(sorted_sequence, self, right, side, sorter, dtype)  # type: ignore[arg-type]


@into(ROWS)
def bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return meta.bucketize(self, boundaries, right, "int32" if out_int32 else "int64")


@into(ROWS)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    return meta.isin(elements, test_elements, invert)


@into(ROWS)
def histogram(self: Any, bins: Any = 100, *, weight: Any = None, range: Any = None, density: bool = False) -> Any:
    return meta.histogram(self, bins, range, weight, density)


@into(ROWS, "unique_dim")
def unique_dim(
    self: Any, dim: int | None, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    values, inverse, counts = meta.unique(self, dim)
    return values, inverse if dim is not None else meta.reshape(inverse, self.shape), counts


@into(ROWS, "_unique2")
def unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return unique_dim(self, None)


@into(ROWS)
def unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    values, inverse, counts = meta.unique_consecutive(self, dim)
    return values, inverse if dim is not None else meta.reshape(inverse, self.shape), counts


@into(ROWS)
def unique_dim_consecutive(self: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return meta.unique_consecutive(self, dim)
