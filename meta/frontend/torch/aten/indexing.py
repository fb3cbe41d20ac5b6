"""Operators that read and write elements by index."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import in_dtype
from meta.functional.embedding import rows_of

_SRC = {"source": "src"}
ROWS: Rows = {
    "argwhere": "argwhere", "index_add": direct("index_add", **_SRC), "index_copy": direct("index_copy", **_SRC),
    "index_fill": "index_fill", "index_put": "index_put", "_unsafe_index_put": "index_put",
    "index_reduce": direct("index_reduce", reduce="reduction", **_SRC),
    "masked_fill": "masked_fill", "masked_scatter": direct("masked_scatter", **_SRC), "masked_select": "masked_select",
    "nonzero_numpy": "nonzero", "put": direct("put", **_SRC),
    "scatter_reduce": direct("scatter_reduce", reduce="reduction"), "take_along_dim": "take_along_dim",
}  # fmt: skip


@into(ROWS)
def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return meta.scatter_reduce(self, dim, index, src, "sum")


@into(ROWS)
def scatter(self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    modes = {None: "update", "add": "sum", "multiply": "prod"}
    if reduce not in modes:
        raise ArgumentError("scatter", f"reduce is {reduce!r}", "None, 'add' or 'multiply'")
    return meta.scatter(self, dim, index, value if src is None else src, modes[reduce])  # type: ignore[arg-type]


@into(ROWS)
def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    return meta.select_scatter(self, in_dtype(src, self.dtype), dim, index)


@into(ROWS)
def slice_scatter(self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return meta.slice_scatter(self, in_dtype(src, self.dtype), dim, start, end, step)


@into(ROWS)
def diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return meta.diagonal_scatter(self, in_dtype(src, self.dtype), offset, dim1, dim2)


@into(ROWS)
def repeat_interleave(self: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Any:
    """Of a single tensor: the positions that repeating 0, 1, ... so often gives."""
    if repeats is None:
        return meta.repeat_interleave(meta.arange(0, self.shape[0], 1, "int64", self.device), self)
    return meta.repeat_interleave(self, repeats, dim)


@into(ROWS)
def gather(self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """0-d tensors count as vectors of one element beside those of one axis; no indices pick nothing."""
    if self.ndim == index.ndim:
        return meta.gather(self, dim, index)
    if index.size == 0:
        return meta.zeros(index.shape, self.dtype, self.device)
    x, where = (t if t.ndim else meta.reshape(t, (1,)) for t in (self, index))
    return meta.reshape(meta.gather(x, dim, where), index.shape)


@into(ROWS)
def index_select(self: Any, dim: int, index: Any) -> Any:
    """Of a 0-d tensor: itself."""
    x, where = (t if t.ndim else meta.reshape(t, (1,)) for t in (self, index))
    picked = meta.index_select(x, dim, where)
    return picked if self.ndim else meta.reshape(picked, ())


@into(ROWS)
def take(self: Any, index: Any) -> Any:
    return meta.take(meta.reshape(self, (-1,)), index, 0)


@into(ROWS, "index", "_unsafe_index")
def index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]


@into(ROWS)
def nonzero(self: Any) -> Any:
    return meta.argwhere(self)


@into(ROWS)
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    if weight.ndim != 2:
        raise ArgumentError("embedding", f"weight has shape {weight.shape}", "(rows, features)")
    return rows_of(weight, indices, None if padding_idx < 0 else padding_idx, scale_grad_by_freq)


@into(ROWS)
def embedding_renorm(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    return meta.embedding_renorm(self, indices, max_norm, norm_type)


@into(ROWS)
def one_hot(self: Any, num_classes: int = -1) -> Any:
    if self.dtype != "int64":
        raise ArgumentError("one_hot", f"x is {self.dtype}", "int64")
    count = num_classes
    if num_classes == -1:
        if not self.size:
            raise ArgumentError("one_hot", "x is empty and num_classes is -1", "num_classes")
        count = meta.max(self).item() + 1
    return meta.one_hot(self, count, "int64")
