"""Operators that only rearrange elements. ATen's views and copies are the same here: arrays are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import is_static
from meta.dtype import is_inexact
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows, same
from meta.frontend.torch.aten._values import bounds, in_dtype, is_tensor, position, sliced_places

_SECTIONS = dict.fromkeys(("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections")

rows({
    **same(
        "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "chunk", "column_stack", "diagflat", "dstack",
        "expand", "expand_as", "flatten", "flip", "fliplr", "flipud", "hstack", "moveaxis", "narrow", "ravel",
        "reshape", "stack", "unbind", "unflatten", "vstack",
    ),
    "_reshape_copy": "reshape", "_unsafe_view": "reshape", "alias": "copy", "alias_copy": "copy", "clone": "copy",
    "concat": "concatenate", "detach": "stop_gradient", "detach_copy": "stop_gradient",
    "diag": direct("diag", diagonal="offset"), "diag_embed": direct("diag_embed", dim1="axis1", dim2="axis2"),
    "diagonal": direct("diagonal", dim1="axis1", dim2="axis2"),
    "diagonal_copy": direct("diagonal", dim1="axis1", dim2="axis2"), "dsplit": direct("dsplit", **_SECTIONS),
    "expand_copy": "expand", "hsplit": direct("hsplit", **_SECTIONS), "lift_fresh_copy": "copy", "movedim": "moveaxis",
    "narrow_copy": "narrow", "numpy_T": "transpose", "permute": "transpose", "permute_copy": "transpose",
    "reshape_as": "reshape_like", "rot90": direct("rot90", dims="axes"), "row_stack": "vstack",
    "split_with_sizes": direct("split_with_sizes", split_sizes="sizes"),
    "split_with_sizes_copy": direct("split_with_sizes", split_sizes="sizes"),
    "swapaxes": direct("swap_axis", axis0="axis1", axis1="axis2"),
    "swapdims": direct("swap_axis", dim0="axis1", dim1="axis2"), "tensor_split": direct("tensor_split", **_SECTIONS),
    "tile": direct("tile", dims="reps"), "tril": direct("tril", diagonal="k"), "triu": direct("triu", diagonal="k"),
    "unbind_copy": "unbind", "unfold": direct("unfold", dimension="axis"),
    "unfold_copy": direct("unfold", dimension="axis"), "unsafe_chunk": "chunk",
    "unsafe_split_with_sizes": direct("split_with_sizes", split_sizes="sizes"), "unsqueeze": "expand_dims",
    "unsqueeze_copy": "expand_dims", "view": "reshape", "view_as": "reshape_like", "view_copy": "reshape",
    "vsplit": direct("vsplit", **_SECTIONS),
    "broadcast_tensors": lambda tensors: meta.broadcast_tensors(*tensors),
    "contiguous": lambda self: self,
    **dict.fromkeys(("transpose", "transpose_copy"),
        lambda self, dim0, dim1: meta.swap_axis(self, dim0, dim1) if self.ndim else _same(self, dim0, dim1)),
    "block_diag": lambda tensors: meta.block_diag(*tensors),
    "cartesian_prod": lambda tensors: meta.cartesian_prod(*tensors),
    "meshgrid": lambda tensors, **indexing: meta.meshgrid(*tensors, **indexing),
})  # fmt: skip


@row()
def sum_to_size(self: Tensor, size: Sequence[Any]) -> Any:
    """Sums of integers and booleans are int64; without a sum the dtype stays."""
    if tuple(size) == tuple(self.shape) and self.ndim:
        return self
    return meta.sum_to_size(self if is_inexact(self.dtype) else in_dtype(self, "int64"), size)


@row("t", "t_copy")
def t(self: Tensor) -> Any:
    if self.ndim > 2:
        raise ArgumentError("t", f"x has {self.ndim} axes", "at most 2", "use permute")
    return meta.transpose(self)


@row("mT")
def matrix_transpose(self: Tensor) -> Any:
    if self.ndim < 2:
        raise ArgumentError("mT", f"x has {self.ndim} axes", "at least 2")
    return meta.swap_axis(self, -1, -2)


@row("squeeze", "squeeze_copy")
def squeeze(self: Any, dim: Any = None) -> Any:
    """Axes of other sizes than 1 stay."""
    if dim is None:
        return meta.squeeze(self)
    positions = [position(d, self.ndim) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))]
    ones = tuple(d for d in positions if d < self.ndim and self.shape[d] == 1)
    if len(set(positions)) < len(positions):
        raise ArgumentError("squeeze", f"dim is {dim}", "axes, each once")
    return meta.squeeze(self, ones) if ones else meta.copy(self)


@row("cat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Empty tensors of one axis are left out; dtypes are promoted."""
    for x in tensors:
        if not is_tensor(x):
            raise ArgumentError("cat", f"an element is {type(x).__name__}", "tensors")
    operands = [x for x in tensors if x.ndim != 1 or x.shape[0] != 0] or list(tensors[:1])
    dtype = _promoted(tensors)
    return meta.concatenate([in_dtype(x, dtype) for x in operands], dim)


def _promoted(tensors: Sequence[Any]) -> str | None:
    from meta.dtype import promote

    if not tensors:
        return None
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote(dtype, x.dtype)
    return dtype


@row("split", "split_copy", "unsafe_split")
def split(self: Any, split_size: Any, dim: int = 0) -> Any:
    if isinstance(split_size, (list, tuple)):
        return meta.split_with_sizes(self, split_size, dim)
    axis = position(dim, self.ndim)
    size = self.shape[axis]
    if not is_static((size, split_size)):
        count = size // split_size
        if not isinstance(count, int) or count * split_size != size:
            expected = "a number of pieces that the sizes decide"
            raise ArgumentError("split", f"an axis of size {size} is split into pieces of {split_size}", expected)
        return meta.split_with_sizes(self, [split_size] * count, dim)
    if split_size < 0 or (split_size == 0 and size):
        raise ArgumentError("split", f"split_size is {split_size}", "a positive int")
    return _cut(self, range(split_size, size, split_size) if split_size else (), axis)


def _cut(x: Tensor, places: Sequence[int], axis: int) -> tuple[Any, ...]:
    return tuple(meta.split(x, list(places), axis)) if len(places) else (meta.copy(x),)


@row("slice", "slice_copy")
def meta_slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    if self.ndim == 0 or step < 1:
        raise ArgumentError("slice", f"step {step} on {self.ndim} axes", "a positive step and at least one axis")
    axis = position(dim, self.ndim)
    if is_static((self.shape[axis], start or 0, end or 0)):
        return self[(slice(None),) * axis + (slice(start, end, step),)]
    first, last = bounds(self.shape[axis], start, end)
    cut = last - self.shape[axis]
    if step == 1 and isinstance(first, int) and isinstance(cut, int):
        widths = [(-first, cut) if i == axis else (0, 0) for i in range(self.ndim)]
        return meta.pad(self, widths) if first or cut else meta.copy(self)
    return meta.take(self, sliced_places(first, last, step, self.device), axis)


@row("select", "select_copy")
def select(self: Tensor, dim: int, index: Any) -> Any:
    if self.ndim == 0:
        raise ArgumentError("select", "x is 0-d", "at least one axis")
    axis = position(dim, self.ndim)
    place = index.item() if is_tensor(index) else index
    if is_static((self.shape[axis], place)):
        return self[(slice(None),) * axis + (place,)]
    first = bounds(self.shape[axis], place, None)[0]
    return meta.take(self, meta.full((), first, "int64", self.device), axis)


@row()
def roll(self: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Any:
    if dims == () or dims == []:
        return meta.reshape(meta.roll(meta.reshape(self, (-1,)), shifts, 0), self.shape)
    return meta.roll(self, shifts, dims)


@row()
def repeat(self: Tensor, repeats: Sequence[int]) -> Any:
    if len(repeats) < self.ndim:
        raise ArgumentError("repeat", f"{len(repeats)} repeats for {self.ndim} axes", "one for each axis")
    return meta.tile(self, repeats) if len(repeats) else meta.copy(self)


def _same(x: Tensor, *dims: int) -> Any:
    for dim in dims:
        position(dim, 0)
    return meta.copy(x)


@row()
def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Tensors of different lengths as one, filled up at one side."""
    longest = max(x.shape[0] for x in sequences)
    padded: list[Any] = []
    for x in sequences:
        missing = longest - x.shape[0]
        width = (0, missing) if padding_side == "right" else (missing, 0)
        padded.append(meta.pad(x, (*width, *(0,) * (2 * x.ndim - 2)), padding_value) if missing else x)
    return meta.stack(padded, 0 if batch_first else 1)
