"""Operators that read and write elements by index."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import is_tensor, position
from meta.functional.embedding import rows_of

ROWS: Rows = {"argwhere": "argwhere", "index_select": "index_select", "scatter_add": "scatter_add"}


@into(ROWS)
def gather(self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    return meta.gather(self, dim, index)


@into(ROWS)
def scatter(self: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None) -> Any:
    modes = {None: "update", "add": "add", "multiply": "mul"}
    if reduce not in modes:
        raise ArgumentError("scatter", f"reduce is {reduce!r}", "None, 'add' or 'multiply'")
    values = src if is_tensor(src) else meta.full(index.shape, src, self.dtype, self.device)
    return meta.scatter_elements(self, dim, index, values, modes[reduce])  # type: ignore[arg-type]


@into(ROWS)
def take(self: Any, index: Any) -> Any:
    return meta.take(meta.reshape(self, (-1,)), index, 0)


@into(ROWS)
def take_along_dim(self: Any, indices: Any, dim: int | None = None) -> Any:
    if dim is None:
        return meta.gather(meta.reshape(self, (-1,)), 0, meta.reshape(indices, (-1,)))
    axis = position(dim, self.ndim)
    if self.ndim != indices.ndim:
        raise ArgumentError("take_along_dim", f"{self.ndim} and {indices.ndim} axes", "the same number of axes")
    shapes = (self.shape, indices.shape)
    common = [a if b == 1 else b for a, b in zip(*shapes, strict=True)]
    x = meta.broadcast_to(self, [*common[:axis], self.shape[axis], *common[axis + 1 :]])
    where = meta.broadcast_to(indices, [*common[:axis], indices.shape[axis], *common[axis + 1 :]])
    return meta.gather(x, axis, meta.where(meta.less(where, 0), where + x.shape[axis], where))


@into(ROWS)
def index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]


@into(ROWS)
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    axis = position(dim, self.ndim)
    x = self if self.ndim else meta.reshape(self, (1,))
    where = index if index.ndim else meta.reshape(index, (1,))
    if is_tensor(value) and value.ndim:
        raise ArgumentError("index_fill", f"value has shape {value.shape}", "a number or a 0-d tensor")
    if where.dtype != "int64" or where.ndim != 1:
        raise ArgumentError("index_fill", f"the index is {where.dtype} of shape {index.shape}", "int64 of one axis")
    # A mask, and not scattered values: the gradient counts an index once, however often it occurs.
    size = x.shape[axis]
    row = meta.zeros((size,), "int64", x.device)
    places = meta.where(meta.less(where, 0), where + size, where)
    row = meta.scatter_elements(row, 0, places, meta.ones_like(places))
    mask = meta.reshape(meta.cast(row, "bool"), [-1 if i == axis else 1 for i in range(x.ndim)])
    fill = meta.cast(value, x.dtype) if is_tensor(value) else meta.full((), value, x.dtype, x.device)
    return meta.reshape(meta.where(mask, fill, x), self.shape)


@into(ROWS)
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    axis = position(dim, self.ndim)
    if self.dtype != source.dtype or index.dtype not in ("int64", "int32"):
        raise ArgumentError("index_copy", f"x is {self.dtype}, source {source.dtype}, index {index.dtype}",
                            "one dtype for both, and integer indices")  # fmt: skip
    x = self if self.ndim else meta.reshape(self, (1,))
    where = index if index.ndim else meta.reshape(index, (1,))
    values = source if source.ndim else meta.reshape(source, (1,))
    shape = [where.shape[0] if i == axis else d for i, d in enumerate(x.shape)]
    if tuple(values.shape) != tuple(shape):
        raise ArgumentError("index_copy", f"source has shape {source.shape}", f"the shape {tuple(shape)}")
    spread = meta.reshape(where, [-1 if i == axis else 1 for i in range(x.ndim)])
    return meta.reshape(meta.scatter_elements(x, axis, meta.broadcast_to(spread, shape), values), self.shape)


@into(ROWS)
def masked_select(self: Any, mask: Any) -> Any:
    if mask.dtype != "bool":
        raise ArgumentError("masked_select", f"mask is {mask.dtype}", "bool")
    total = meta.logical_or(meta.cast(meta.zeros_like(self), "bool"), mask)
    both = meta.broadcast_to(self, total.shape), meta.broadcast_to(mask, total.shape)
    if not total.ndim:
        both = tuple(meta.reshape(x, (1,)) for x in both)
    return both[0][both[1]]


@into(ROWS)
def nonzero(self: Any) -> Any:
    return meta.argwhere(self)


@into(ROWS)
def nonzero_numpy(self: Any) -> Any:
    """The places of nonzero elements, one tensor an axis. A 0-d tensor counts as one of an element."""
    x = self if self.ndim else meta.reshape(self, (1,))
    places = meta.argwhere(x)
    return tuple(meta.squeeze(column, 1) for column in (meta.split(places, x.ndim, 1) if x.ndim > 1 else (places,)))


@into(ROWS)
def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    axis = position(dim, self.ndim)
    size = self.shape[axis]
    if not -size <= index < size:
        raise ArgumentError("select_scatter", f"the index is {index}", f"one in [-{size}, {size - 1}]")
    return _set(self, meta.expand_dims(src, axis), axis, index % size, index % size + 1, 1)


@into(ROWS)
def slice_scatter(self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = position(dim, self.ndim)
    first, last, step = slice(start, end, step).indices(self.shape[axis])
    return _set(self, src, axis, first, max(first, last), step)


def _set(x: Any, value: Any, axis: int, begin: int, end: int, step: int) -> Any:
    begins, ends, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    begins[axis], ends[axis], steps[axis] = begin, end, step
    return meta.strided_set(x, meta.cast(value, x.dtype), begins, ends, steps)


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


@into(ROWS, "repeat_interleave")
def repeat_interleave(self: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Any:
    x, axis = (meta.reshape(self, (-1,)), 0) if dim is None else (self, position(dim, self.ndim))
    if isinstance(repeats, int):
        return meta.repeat(x if x.ndim else meta.reshape(x, (1,)), repeats, axis)
    counts = repeats.tolist() if repeats.ndim else [repeats.item()]
    size = x.shape[axis] if x.ndim else 1
    counts = counts * size if len(counts) == 1 else counts
    if len(counts) != size:
        raise ArgumentError("repeat_interleave", f"{len(counts)} repeats for {size} elements", "one for each element")
    where = [i for i, count in enumerate(counts) for _ in range(count)]
    picked = meta.array(where, dtype="int64", device=x.device)
    return meta.take(x if x.ndim else meta.reshape(x, (1,)), picked, axis)
