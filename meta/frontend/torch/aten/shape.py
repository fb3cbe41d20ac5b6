"""Operators that only rearrange elements. ATen's views and copies are the same here: arrays are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.dim import product
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import in_dtype, is_tensor, position

ROWS: Rows = {
    "_unsafe_view": "reshape", "_reshape_copy": "reshape",
    "alias": "copy", "alias_copy": "copy", "broadcast_to": "broadcast_to", "clone": "copy",
    "concat": "concatenate", "detach": "stop_gradient", "detach_copy": "stop_gradient", "flip": "flip",
    "lift_fresh_copy": "copy", "movedim": "moveaxis", "moveaxis": "moveaxis", "permute": "transpose",
    "permute_copy": "transpose", "reshape": "reshape", "reshape_as": "reshape_like", "stack": "stack",
    "swapaxes": direct("swap_axis", axis0="axis1", axis1="axis2"),
    "swapdims": direct("swap_axis", dim0="axis1", dim1="axis2"), "tile": direct("tile", dims="reps"),
    "tril": direct("tril", diagonal="k"), "triu": direct("triu", diagonal="k"), "view": "reshape",
    "view_as": "reshape_like",
}  # fmt: skip


@into(ROWS)
def view_copy(self: Any, size: Any) -> Any:
    return meta.reshape(self, size)


@into(ROWS)
def contiguous(self: Any) -> Any:
    return self


@into(ROWS, "transpose", "transpose_copy")
def transpose(self: Any, dim0: int, dim1: int) -> Any:
    return meta.swap_axis(self, dim0, dim1) if self.ndim else _same(self, dim0, dim1)


@into(ROWS, "t", "t_copy")
def t(self: Any) -> Any:
    if self.ndim > 2:
        raise ArgumentError("t", f"x has {self.ndim} axes", "at most 2", "use permute")
    return meta.transpose(self)


@into(ROWS, "numpy_T")
def numpy_t(self: Any) -> Any:
    return meta.transpose(self)


@into(ROWS, "mT")
def matrix_transpose(self: Any) -> Any:
    if self.ndim < 2:
        raise ArgumentError("mT", f"x has {self.ndim} axes", "at least 2")
    return meta.swap_axis(self, -1, -2)


@into(ROWS, "unsqueeze", "unsqueeze_copy")
def unsqueeze(self: Any, dim: int) -> Any:
    return meta.expand_dims(self, dim)


@into(ROWS, "squeeze", "squeeze_copy")
def squeeze(self: Any, dim: Any = None) -> Any:
    """Axes of other sizes than 1 stay."""
    if dim is None:
        return meta.squeeze(self)
    wanted = [position(d, self.ndim) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))]
    ones = tuple(d for d in wanted if d < self.ndim and self.shape[d] == 1)
    if len(set(wanted)) < len(wanted):
        raise ArgumentError("squeeze", f"dim is {dim}", "axes, each once")
    return meta.squeeze(self, ones) if ones else meta.copy(self)


@into(ROWS, "expand", "expand_copy")
def expand(self: Any, size: Sequence[Any]) -> Any:
    """-1 keeps the size of an axis."""
    lead = len(size) - self.ndim
    if lead < 0 or -1 in size[:lead]:
        raise ArgumentError("expand", f"the size is {tuple(size)} for shape {self.shape}", "a size for every axis")
    kept = [self.shape[i - lead] if i >= lead and isinstance(d, int) and d == -1 else d for i, d in enumerate(size)]
    return meta.broadcast_to(self, kept)


@into(ROWS)
def expand_as(self: Any, other: Any) -> Any:
    return meta.broadcast_to(self, other.shape)


@into(ROWS)
def broadcast_tensors(tensors: Sequence[Any]) -> Any:
    total = tensors[0]
    shape: Any = total.shape
    for x in tensors[1:]:
        shape = meta.broadcast_to(meta.zeros(shape), _common(shape, x.shape)).shape
    return tuple(meta.broadcast_to(x, shape) for x in tensors)


def _common(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that two shapes broadcast to; sizes that differ are reported by `broadcast_to`."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


@into(ROWS, "cat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Empty tensors of one axis are left out; dtypes are promoted."""
    for x in tensors:
        if not is_tensor(x):
            raise ArgumentError("cat", f"an element is {type(x).__name__}", "tensors")
    kept = [x for x in tensors if x.ndim != 1 or x.shape[0] != 0] or list(tensors[:1])
    dtype = _promoted(tensors)
    return meta.concatenate([in_dtype(x, dtype) for x in kept], dim)


def _promoted(tensors: Sequence[Any]) -> str | None:
    from meta.dtype import promote

    if not tensors:
        return None
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote(dtype, x.dtype)
    return dtype


@into(ROWS, "unbind", "unbind_copy")
def unbind(self: Any, dim: int = 0) -> Any:
    axis = position(dim, self.ndim)
    count = self.shape[axis]
    if count == 0:
        return ()
    parts = meta.split(self, count, axis) if count > 1 else (self,)
    return tuple(meta.squeeze(part, axis) for part in parts)


@into(ROWS, "split", "split_copy")
def split(self: Any, split_size: Any, dim: int = 0) -> Any:
    if isinstance(split_size, (list, tuple)):
        return split_with_sizes(self, split_size, dim)  # pyright: ignore[reportUnknownArgumentType]
    axis = position(dim, self.ndim)
    size = self.shape[axis]
    if split_size < 0 or (split_size == 0 and size):
        raise ArgumentError("split", f"split_size is {split_size}", "a positive int")
    return _cut(self, range(split_size, size, split_size) if split_size else (), axis)


@into(ROWS, "split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int = 0) -> Any:
    axis = position(dim, self.ndim)
    if sum(split_sizes) != self.shape[axis] or min(split_sizes, default=0) < 0:
        raise ArgumentError(
            "split_with_sizes",
            f"sizes {tuple(split_sizes)} for an axis of {self.shape[axis]}",
            "sizes that add up to it",
        )
    ends = [sum(split_sizes[: i + 1]) for i in range(len(split_sizes) - 1)]
    return _cut(self, ends, axis)


def _cut(x: Any, places: Sequence[int], axis: int) -> tuple[Any, ...]:
    return tuple(meta.split(x, list(places), axis)) if len(places) else (meta.copy(x),)


@into(ROWS)
def chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    axis = position(dim, self.ndim)
    if self.ndim == 0 or chunks < 1:
        raise ArgumentError("chunk", f"{chunks} chunks of shape {self.shape}", "at least one axis and one chunk")
    size = -(-self.shape[axis] // chunks)
    return split(self, size, axis) if size else (meta.copy(self),) * chunks


@into(ROWS)
def tensor_split(self: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Sections differ in size by at most one, the larger first; places beyond the end give empty parts."""
    if self.ndim == 0:
        raise ArgumentError("tensor_split", "x is 0-d", "at least one axis")
    axis, size = position(dim, self.ndim), self.shape[position(dim, self.ndim)]
    wanted: Any = indices_or_sections
    if is_tensor(wanted):
        if wanted.dtype != "int64" or wanted.ndim > 1 or str(wanted.device) != "cpu":
            raise ArgumentError("tensor_split", f"{wanted.dtype} of shape {wanted.shape}", "int64 of at most one axis")
        wanted = wanted.tolist() if wanted.ndim else wanted.item()
    if isinstance(wanted, int):
        if wanted < 1:
            raise ArgumentError("tensor_split", f"{wanted} sections", "at least 1")
        small, larger = divmod(size, wanted)
        wanted = [i * small + min(i, larger) for i in range(1, wanted)]
    starts, ends = [0, *wanted], [*wanted, size]
    return tuple(meta_slice(self, axis, a, b) for a, b in zip(starts, ends, strict=True))


@into(ROWS)
def hsplit(self: Any, indices_or_sections: Any) -> Any:
    return _along("hsplit", self, indices_or_sections, 1, 0 if self.ndim == 1 else 1)


@into(ROWS)
def vsplit(self: Any, indices_or_sections: Any) -> Any:
    return _along("vsplit", self, indices_or_sections, 2, 0)


@into(ROWS)
def dsplit(self: Any, indices_or_sections: Any) -> Any:
    return _along("dsplit", self, indices_or_sections, 3, 2)


def _along(name: str, x: Any, wanted: Any, rank: int, axis: int) -> Any:
    if x.ndim < rank:
        raise ArgumentError(name, f"x has {x.ndim} axes", f"at least {rank}")
    if isinstance(wanted, int) and (wanted < 1 or x.shape[axis] % wanted):
        raise ArgumentError(name, f"{wanted} sections of an axis of {x.shape[axis]}", "a divisor of its size")
    return tensor_split(x, wanted, axis)


@into(ROWS, "narrow", "narrow_copy")
def narrow(self: Any, dim: int, start: Any, length: int) -> Any:
    axis = position(dim, self.ndim)
    size = self.shape[axis] if self.ndim else 0
    if is_tensor(start):
        if start.ndim or start.dtype not in ("uint8", "int8", "int16", "int32", "int64"):
            raise ArgumentError("narrow", f"start is {start.dtype} of shape {start.shape}", "a 0-d integer")
        start = start.item()
    if self.ndim == 0 or length < 0 or not -size <= start <= size or start % (size + 1) + length > size + (start < 0):
        raise ArgumentError("narrow", f"{length} from {start} of an axis of {size}", "a part of the axis")
    start += size if start < 0 else 0
    return meta_slice(self, axis, start, start + length)


@into(ROWS, "slice", "slice_copy")
def meta_slice(self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if self.ndim == 0 or step < 1:
        raise ArgumentError("slice", f"step {step} on {self.ndim} axes", "a positive step and at least one axis")
    axis = position(dim, self.ndim)
    return self[(slice(None),) * axis + (slice(start, end, step),)]


@into(ROWS, "select", "select_copy")
def select(self: Any, dim: int, index: Any) -> Any:
    if self.ndim == 0:
        raise ArgumentError("select", "x is 0-d", "at least one axis")
    return self[(slice(None),) * position(dim, self.ndim) + (index.item() if is_tensor(index) else index,)]


@into(ROWS)
def roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    if dims == () or dims == []:
        return meta.reshape(meta.roll(meta.reshape(self, (-1,)), shifts, 0), self.shape)
    return meta.roll(self, shifts, dims)


@into(ROWS)
def fliplr(self: Any) -> Any:
    return meta.flip(self, 1)


@into(ROWS)
def flipud(self: Any) -> Any:
    if not self.ndim:
        raise ArgumentError("flipud", "x is 0-d", "at least one axis")
    return meta.flip(self, 0)


@into(ROWS)
def repeat(self: Any, repeats: Sequence[int]) -> Any:
    if len(repeats) < self.ndim:
        raise ArgumentError("repeat", f"{len(repeats)} repeats for {self.ndim} axes", "one for each axis")
    return meta.tile(self, repeats) if len(repeats) else meta.copy(self)


@into(ROWS)
def ravel(self: Any) -> Any:
    return meta.reshape(self, (-1,)) if self.size else meta.reshape(self, (0,))


@into(ROWS)
def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if self.ndim == 0:
        return meta.reshape(self, (1,))
    start, end = position(start_dim, self.ndim), position(end_dim, self.ndim)
    if start > end:
        raise ArgumentError("flatten", f"start_dim is {start_dim}, end_dim {end_dim}", "start_dim up to end_dim")
    return meta.reshape(self, (*self.shape[:start], product(self.shape[start : end + 1]), *self.shape[end + 1 :]))


@into(ROWS)
def unflatten(self: Any, dim: int, sizes: Sequence[int]) -> Any:
    axis = position(dim, self.ndim)
    if not len(sizes):
        raise ArgumentError("unflatten", "sizes is empty", "at least one size")
    known = product([d for d in sizes if d != -1])
    full = [self.shape[axis] // known if d == -1 and known else d for d in sizes]
    if product(full) != self.shape[axis]:
        raise ArgumentError("unflatten", f"sizes {tuple(sizes)} for an axis of {self.shape[axis]}", "its factors")
    return meta.reshape(self, (*self.shape[:axis], *full, *self.shape[axis + 1 :]))


def _same(x: Any, *dims: int) -> Any:
    for dim in dims:
        position(dim, 0)
    return meta.copy(x)
