"""Operators that read and write elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import is_static
from meta.dtype import is_complex, is_unsigned
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten._values import bounds, in_dtype, position, scaled, sliced_places
from meta.functional.embedding import rows_of

_SRC = {"source": "src"}
rows({
    "index_copy": direct("index_copy", **_SRC),
    "index_fill": "index_fill",
    "index_reduce": direct("index_reduce", reduce="reduction", **_SRC),
    "masked_fill": "masked_fill", "masked_scatter": direct("masked_scatter", **_SRC), "masked_select": "masked_select",
    "nonzero_numpy": "nonzero", "put": direct("put", **_SRC),
    "scatter_reduce": direct("scatter_reduce", reduce="reduction"), "take_along_dim": "take_along_dim",
    "scatter_add": lambda self, dim, index, src: meta.scatter_reduce(self, dim, index, src, "sum"),
    "diagonal_scatter": lambda self, src, offset=0, dim1=0, dim2=1:
        meta.diagonal_scatter(self, in_dtype(src, self.dtype), offset, dim1, dim2),
    "take": lambda self, index: meta.take(meta.reshape(self, (-1,)), index, 0),
    **dict.fromkeys(("index", "_unsafe_index"),
        lambda self, indices: self[tuple(slice(None) if i is None else i for i in indices)]),
    **dict.fromkeys(("nonzero", "argwhere"),
        lambda self: meta.argwhere(meta.not_equal(self, 0) if is_complex(self.dtype) else self)),
    "embedding_renorm": direct("embedding_renorm", self="weight"),
})  # fmt: skip


@row()
def scatter(self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    modes: dict[Any, Any] = {None: "update", "add": "sum", "multiply": "prod"}
    if reduce not in modes:
        raise ArgumentError("scatter", f"reduce is {reduce!r}", "None, 'add' or 'multiply'")
    return meta.scatter(self, dim, index, value if src is None else src, modes[reduce])


@row()
def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Any:
    value, axis = in_dtype(src, self.dtype), position(dim, self.ndim)
    if is_static((self.shape[axis], index)):
        return meta.select_scatter(self, value, axis, index)
    place = meta.full((1,), bounds(self.shape[axis], index, None)[0], "int64", self.device)
    return meta.index_copy(self, axis, place, meta.expand_dims(value, axis))


@row()
def slice_scatter(
    self: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    value, axis = in_dtype(src, self.dtype), position(dim, self.ndim)
    size = self.shape[axis]
    if is_static((size, start or 0, end or 0)):
        return meta.slice_scatter(self, value, axis, start, end, step)
    first, last = bounds(size, start, end)
    if step == 1 and isinstance(first, int) and first == 0 and last == size:
        return value
    return meta.index_copy(self, axis, sliced_places(first, last, step, self.device), value)


@row()
def repeat_interleave(
    self: Tensor, repeats: Tensor | int | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """For a single tensor: the positions 0, 1, ..., each repeated so often."""
    if repeats is None:
        return meta.repeat_interleave(meta.arange(0, self.shape[0], 1, self.dtype, self.device), self)
    return meta.repeat_interleave(self, repeats, dim)


@row()
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """A 0-d tensor counts as a vector of one element if the other tensor is a vector; without indices the result is
    empty."""
    if self.ndim == index.ndim:
        return meta.gather(self, dim, index)
    if index.size == 0:
        return meta.zeros(index.shape, self.dtype, self.device)
    x, where = (t if t.ndim else meta.reshape(t, (1,)) for t in (self, index))
    return meta.reshape(meta.gather(x, dim, where), index.shape)


@row()
def index_select(self: Tensor, dim: int, index: Tensor) -> Any:
    """A 0-d tensor is its own transpose."""
    x, where = (t if t.ndim else meta.reshape(t, (1,)) for t in (self, index))
    picked = meta.index_select(x, dim, where)
    return picked if self.ndim else meta.reshape(picked, ())


@row("index_put", "_unsafe_index_put")
def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """A mask of a program, whose number of true elements is unknown, chooses between the values and the old ones."""
    masks = [i for i in indices if i is not None and i.dtype == "bool"]
    if isinstance(self, meta.NDArray) or not masks:
        return meta.index_put(self, indices, values, accumulate)
    lead = next(n for n, i in enumerate(indices) if i is not None)
    mask, rest = masks[0], self.ndim - lead - masks[0].ndim
    if len(indices) != lead + 1 or rest < 0:
        raise ArgumentError("index_put", "a mask among other indices in a program", "a mask alone")
    wide = meta.broadcast_to(meta.reshape(mask, (*mask.shape, *(1,) * rest)), self.shape)
    if values.ndim <= rest or (lead == 0 and values.shape[0] == 1):
        new = meta.broadcast_to(values, self.shape)
    elif lead == 0:
        new = meta.masked_scatter(self, wide, values)
    else:
        raise ArgumentError("index_put", f"values of shape {values.shape} for a mask of axis {lead}", "a single value")
    return meta.where(wide, self + new if accumulate else new, self)


@row()
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if is_unsigned(source.dtype):
        return meta.index_add(self, dim, index, scaled(source, alpha))
    return meta.index_add(self, dim, index, source, alpha)


@row()
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    if weight.ndim != 2:
        raise ArgumentError("embedding", f"weight has shape {weight.shape}", "(rows, features)")
    return rows_of(weight, indices, None if padding_idx < 0 else padding_idx, scale_grad_by_freq)


@row()
def one_hot(self: Tensor, num_classes: int = -1) -> Any:
    if self.dtype != "int64":
        raise ArgumentError("one_hot", f"x is {self.dtype}", "int64")
    count = num_classes
    if num_classes == -1:
        if not self.size:
            raise ArgumentError("one_hot", "x is empty and num_classes is -1", "num_classes")
        count = meta.max(self).item() + 1
    return meta.one_hot(self, count, "int64")


def fill_diagonal(self: Tensor, fill_value: Any, wrap: bool = False) -> Any:
    """x with `fill_value` where all positions are equal; with `wrap`, the diagonal of a matrix with more rows than
    columns begins again after each square and a row. ATen only has it in place."""
    if self.ndim < 2 or (self.ndim > 2 and len(set(self.shape)) > 1):
        raise ArgumentError("fill_diagonal_", f"x is {self.shape}", "a matrix, or more axes of equal sizes")
    rows, *others = (meta.arange(n, device=self.device) for n in self.shape)
    if wrap and self.ndim == 2:
        rows = meta.remainder(rows, self.shape[1] + 1)
    rest = self.ndim - 1
    rows = meta.reshape(rows, (-1, *(1,) * rest))
    places = [meta.equal(rows, meta.reshape(each, (-1, *(1,) * (rest - 1 - i)))) for i, each in enumerate(others)]
    return meta.masked_fill(self, reduce(meta.logical_and, places), fill_value)
