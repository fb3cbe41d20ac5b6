"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.torch.aten._row import row, rows, same

rows({
    **same("bincount", "histc", "kthvalue", "median", "mode", "nanmedian", "nanquantile", "quantile"),
    "argsort": lambda self, dim=-1, descending=False, *, stable=None: meta.argsort(self, dim, descending),
    "msort": lambda self: meta.sort(self, 0),
    "topk": lambda self, k, dim=-1, largest=True, sorted=True: meta.topk(self, k, dim, largest),
    "bucketize": lambda self, boundaries, *, out_int32=False, right=False:
        meta.bucketize(self, boundaries, right, "int32" if out_int32 else "int64"),
    "isin": lambda elements, test_elements, *, assume_unique=False, invert=False:
        meta.isin(elements, test_elements, invert),
    "histogram": lambda self, bins=100, *, weight=None, range=None, density=False:
        meta.histogram(self, bins, range, weight, density),
    "_unique2": lambda self, sorted=True, return_inverse=False, return_counts=False: unique_dim(self, None),
    "unique_dim_consecutive": lambda self, dim, return_inverse=False, return_counts=False:
        meta.unique_consecutive(self, dim),
})  # fmt: skip


@row()
def sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    order = meta.argsort(self, dim, descending)
    return (meta.gather(self, dim, order) if self.ndim else meta.copy(self)), order


@row()
def searchsorted(
    sorted_sequence: Any, self: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    return meta.searchsorted(sorted_sequence, self, right, side, sorter, "int32" if out_int32 else "int64")


@row("unique_dim")
def unique_dim(
    self: Tensor, dim: int | None, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    values, inverse, counts = meta.unique(self, dim)
    return values, inverse if dim is not None else meta.reshape(inverse, self.shape), counts


@row()
def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    values, inverse, counts = meta.unique_consecutive(self, dim)
    return values, inverse if dim is not None else meta.reshape(inverse, self.shape), counts
