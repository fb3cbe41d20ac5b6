"""Scatters, and gradients of slices and gathers."""

from __future__ import annotations

from typing import Any

import meta
from meta.dim import SymDim, product
from meta.op.decomposition import decomposition


@decomposition("scatter_add")
def scatter_add(x: Any, axis: int, indices: Any, src: Any) -> Any:
    return meta.scatter_elements(x, axis, indices, src, "add")


@decomposition("gather_dx")
def gather_dx(dy: Any, axis: int, indices: Any, shape: tuple[Any, ...]) -> Any:
    return meta.scatter_elements(meta.zeros(shape, dy.dtype, dy.device), axis, indices, dy, "add")


@decomposition("gather_nd_dx")
def gather_nd_dx(dy: Any, indices: Any, shape: tuple[Any, ...], batch_dims: int) -> Any:
    """The positions along the axes of the batch are further coordinates."""
    if batch_dims:
        grid = [meta.broadcast_to(_numbers(indices, i), indices.shape[1:]) for i in range(1, 1 + batch_dims)]
        indices = meta.concatenate([meta.stack(grid, 0), meta.cast(indices, "int64")], 0)
    return meta.scatter_nd(meta.zeros(shape, dy.dtype, dy.device), indices, dy, "add")


def _numbers(x: Any, axis: int) -> Any:
    """The positions along an axis, broadcast against the axes behind the first."""
    numbers = meta.arange(0, x.shape[axis], 1, "int64", x.device)
    return meta.expand_dims(numbers, tuple(range(1, x.ndim - axis))) if axis < x.ndim - 1 else numbers


@decomposition("embedding_dx")
def embedding_dx(dy: Any, indices: Any, num_weight: int) -> Any:
    blank = meta.zeros((num_weight, *dy.shape[indices.ndim :]), dy.dtype, dy.device)
    return meta.scatter_nd(blank, meta.expand_dims(meta.cast(indices, "int64"), (0,)), dy, "add")


@decomposition("take_dx")
def take_dx(dy: Any, indices: Any, shape: tuple[Any, ...], axis: int | None, mode: str) -> Any:
    """Rows are added at their positions along the first axis, which moves back afterwards."""
    if axis is None:
        size = product(shape)
        flat = take_dx(dy, indices, (size,), 0, mode)
        return None if flat is None else meta.reshape(flat, shape)
    axis %= len(shape)
    size, index = shape[axis], meta.cast(indices, "int64")
    if mode == "wrap" and isinstance(size, SymDim):
        return None
    if mode == "raise" and isinstance(size, int):
        index = meta.where(index < 0, index + size, index)
    index = meta.mod(index, size) if mode == "wrap" else meta.clip(index, 0, size - 1) if mode == "clip" else index
    order = (*range(axis, axis + indices.ndim), *range(axis), *range(axis + indices.ndim, dy.ndim))
    rows = dy if order == tuple(range(dy.ndim)) else meta.transpose(dy, order)
    blank = meta.zeros((size, *shape[:axis], *shape[axis + 1 :]), dy.dtype, dy.device)
    total = meta.scatter_nd(blank, meta.expand_dims(index, (0,)), rows, "add")
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    return total if back == tuple(range(len(shape))) else meta.transpose(total, back)


@decomposition("strided_slice_dx", wide=False)
def strided_slice_dx(dy: Any, shape: tuple[Any, ...], begin: Any, end: Any, strides: Any) -> Any:
    return (
        None if any(isinstance(d, SymDim) for d in shape) else _placed(dy, _slices(shape, begin, end, strides), shape)
    )


@decomposition("strided_set", wide=False)
def strided_set(x: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    """The elements of a slice from v with zeros around it, the others from x."""
    if any(isinstance(d, SymDim) for d in (*x.shape, *v.shape)):
        return None
    slices = _slices(x.shape, begin, end, strides)
    inner = tuple(map(len, slices))
    inside = _placed(meta.ones(inner, "float32", x.device), slices, x.shape)
    return meta.where(meta.equal(inside, 1.0), _placed(meta.broadcast_to(v, inner), slices, x.shape), x)


def _slices(shape: tuple[int, ...], begin: Any, end: Any, strides: Any) -> list[range]:
    """The positions of a slice along each axis."""
    given = [slice(*bounds) for bounds in zip(begin, end, strides or (1,) * len(begin), strict=True)]
    whole = [slice(None)] * (len(shape) - len(given))
    return [range(size)[each] for size, each in zip(shape, [*given, *whole], strict=True)]


def _placed(v: Any, slices: list[range], shape: tuple[int, ...]) -> Any:
    """The elements of a slice in a tensor of zeros."""
    for axis, (places, size) in enumerate(zip(slices, shape, strict=True)):
        around = (*v.shape[:axis], size, *v.shape[axis + 1 :])
        if places.step == 1:
            before = [0] * (2 * axis)
            v = meta.pad(
                v, (*before, places.start, size - places.start - len(places), *[0] * (2 * (v.ndim - axis - 1))), 0
            )
        else:
            index = meta.arange(places.start, places.stop, places.step, "int64", v.device)
            index = meta.broadcast_to(meta.reshape(index, (-1, *(1,) * (v.ndim - axis - 1))), v.shape)
            v = meta.scatter_elements(meta.zeros(around, v.dtype, v.device), axis, index, v, "update")
    return v
