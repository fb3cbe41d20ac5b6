"""Operators on the memory of tensors: copies, factories with strides, and views by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import is_static, product
from meta.dtype import int_range, is_inexact
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row, rows
from meta.frontend.torch.aten._values import in_dtype

rows({
    "lift": "copy", "lift_fresh": "copy",
    # The values of `src` with shape and dtype of `self`.
    "copy": lambda self, src, non_blocking=False: meta.broadcast_to(in_dtype(src, self.dtype), self.shape),
    # Zeros: arrays are compact, whatever their strides or the order of their axes in torch.
    **dict.fromkeys(("empty_strided", "empty_permuted"),
        lambda size, order, *, dtype=None, device=None: meta.zeros(tuple(size), dtype or "float32", device or "cpu")),
    "new_empty_strided": lambda self, size, stride, *, dtype=None, device=None:
        meta.zeros(tuple(size), dtype or self.dtype, device or self.device),
})  # fmt: skip

BY_STRIDES = frozenset({"as_strided", "as_strided_copy", "as_strided_scatter"})
"""Rows that read the memory of a tensor: right for tensors that are contiguous in torch, which their callers check."""


@row("as_strided", "as_strided_copy")
def as_strided(self: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: int | None = None) -> Any:
    """Elements of the memory of a tensor that is contiguous and at the beginning of its storage in torch.

    Raises ArgumentError for elements outside, and for symbolic sizes unless the elements follow one another."""
    flat, offset, count = meta.reshape(self, (-1,)), storage_offset or 0, product(size)
    order = _order(size, stride)
    if order is not None:
        if isinstance(self.size, int) and isinstance(count, int):
            _check_bounds(self, offset + count - 1 if count else 0)
        part = flat if count == self.size and offset == 0 else flat[offset : offset + count]
        stored = meta.reshape(part, tuple(size[i] for i in order))
        return stored if order == sorted(order) else meta.transpose(stored, tuple(np.argsort(order).tolist()))
    places = _places("as_strided", size, stride, offset)
    _check_bounds(self, int(places.max(initial=0)))
    return meta.take(flat, meta.array(places, device=self.device), 0)


def resized(memory: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    """The first elements of a 1-d tensor that has the memory of another; where it is too short, what torch fills new
    memory with when it is deterministic. Raises as `as_strided` does."""
    missing = product(size) + offset - memory.size
    if isinstance(missing, int) and missing > 0:
        unset: Any = float("nan") if is_inexact(memory.dtype) else memory.dtype == "bool" or int_range(memory.dtype)[1]
        memory = meta.concatenate([memory, meta.full((missing,), unset, memory.dtype, memory.device)])
    return as_strided(memory, size, stride, offset)


@row()
def as_strided_scatter(
    self: Tensor, src: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: int | None = None
) -> Any:
    """`self` with `src` in the place of `as_strided(self, size, stride, storage_offset)`, on the same condition."""
    offset, count = storage_offset or 0, product(size)
    if _order(size, stride) == list(range(len(size))) and count == self.size and offset == 0:
        return meta.reshape(in_dtype(src, self.dtype), self.shape)
    places = _places("as_strided_scatter", size, stride, offset)
    _check_bounds(self, int(places.max(initial=0)))
    flat, index = meta.reshape(self, (-1,)), meta.array(places.reshape(-1), device=self.device)
    values = meta.reshape(in_dtype(src, self.dtype), (-1,))
    return meta.reshape(meta.index_copy(flat, 0, index, values), self.shape)


def _order(size: Sequence[Any], stride: Sequence[Any]) -> list[int] | None:
    """The axes from the slowest to the fastest in memory, if the elements follow one another in it; strides of axes of
    size 1 say nothing."""
    if not is_static(stride):
        compact = [product(size[i + 1 :]) for i in range(len(size))]
        fits = all(s == c or n == 1 for n, s, c in zip(size, stride, compact, strict=True))
        return list(range(len(size))) if fits else None
    long = sorted((i for i, n in enumerate(size) if n != 1), key=lambda i: -stride[i])
    following: Any = 1
    for i in reversed(long):
        if stride[i] != following:
            return None
        following = following * size[i]
    if long == sorted(long):
        return list(range(len(size)))
    return [*long, *(i for i, n in enumerate(size) if n == 1)]


def _places(name: str, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> np.ndarray[Any, Any]:
    """The positions in the flattened tensor."""
    if not is_static((*size, *stride, offset)):
        problem = f"size is {tuple(size)}, stride {tuple(stride)}, storage_offset {offset}"
        raise ArgumentError(name, problem, "static sizes, or elements that follow one another", "export without it")
    places = np.full((1,) * len(size), offset, dtype=np.int64)
    for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
        places = places + np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(size))]) * s
    return places


def _check_bounds(x: Tensor, last: int) -> None:
    if isinstance(x.size, int) and last >= max(x.size, 1):
        raise ArgumentError("as_strided", f"the last element is {last}", f"less than {x.size}, the elements of x")
