"""Slices, and reads and writes of elements by position, by ATen, for complex numbers.

As in other dialects, reads out of range are NaN, and nothing is written there; eager calls on the CPU refuse them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import complex_only

_Ints = tuple[int, ...]


def _sliced(torch: Any, x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> tuple[Any, ...]:
    """An index for each axis, in place of slices, which ATen takes with positive steps only."""
    out: list[Any] = []
    for axis, (first, last, step) in enumerate(zip(begin, end, strides or (1,) * len(begin), strict=True)):
        index_range = range(*slice(first, last, step).indices(x.shape[axis]))  # ATen refuses bounds of empty ranges
        positions = torch.arange(len(index_range), device=x.device) * index_range.step + index_range.start
        out.append(positions.view(-1, *(1,) * (len(begin) - 1 - axis)))
    return tuple(out)


def strided_slice(torch: Any) -> Callable[..., Any]:
    def run(x: Any, begin: _Ints, end: _Ints, strides: _Ints) -> Any:
        if all(step > 0 for step in strides):
            return x[tuple(slice(*bounds) for bounds in zip(begin, end, strides or (1,) * len(begin), strict=True))]
        return x[_sliced(torch, x, begin, end, strides)]

    return run


def strided_slice_dx(torch: Any) -> Callable[..., Any]:
    def run(dy: Any, shape: _Ints, *bounds: _Ints) -> Any:
        out = dy.new_zeros(shape)
        out[_sliced(torch, out, *bounds) or ...] = dy
        return out

    return run


def strided_set(torch: Any) -> Callable[..., Any]:
    def run(x: Any, v: Any, *bounds: _Ints) -> Any:
        out = x.clone()
        out[_sliced(torch, out, *bounds) or ...] = v
        return out

    return run


complex_only({"strided_set": strided_set, "strided_slice": strided_slice, "strided_slice_dx": strided_slice_dx})

_Place = tuple[tuple[Any, ...], Any]
"""Index tensors, and which of the places are inside."""


def _located(torch: Any, indices: Any, size: int, mode: str = "") -> tuple[Any, Any]:
    """Positions moved into [0, size), and which of them were inside: all for mode "clip" and "wrap". With mode "raise",
    negative positions count from the end."""
    positions = indices.to(torch.int64)
    if mode in ("clip", "wrap"):
        moved = positions.clamp(0, max(size - 1, 0)) if mode == "clip" else positions.remainder(max(size, 1))
        return moved, torch.ones_like(positions, dtype=torch.bool)
    counted = torch.where(positions < 0, positions + size, positions) if mode == "raise" else positions
    inside = (counted >= 0) & (counted < size)
    return torch.where(inside, counted, 0), inside


def _along(torch: Any, indices: Any, axis: int, shape: _Ints) -> _Place:
    """For each element of `indices`, the place in a tensor of `shape` that it names along `axis`."""
    positions, inside = _located(torch, indices, shape[axis] if shape else 1)
    counts = [torch.arange(n, device=indices.device) for n in indices.shape]
    grid = list(torch.meshgrid(*counts, indexing="ij")) if counts else []
    if grid:
        grid[axis] = positions
    return tuple(grid), inside


def _coordinates(torch: Any, indices: Any, shape: _Ints, batch_dims: int) -> _Place:
    """The places at leading coordinates, behind axes that they share with the tensor."""
    counts = [torch.arange(n, device=indices.device) for n in indices.shape[1:]]
    batch = torch.meshgrid(*counts, indexing="ij")[:batch_dims] if batch_dims else ()
    located = [_located(torch, i, size) for i, size in zip(indices, shape[batch_dims:], strict=False)]
    inside = torch.ones(indices.shape[1:], dtype=torch.bool, device=indices.device)
    for _, is_inside in located:
        inside = inside & is_inside
    return (*batch, *(positions for positions, _ in located)), inside


def _read(torch: Any, x: Any, place: _Place) -> Any:
    positions, inside = place
    if x.numel() == 0 and inside.numel():
        return torch.full((), math.nan, dtype=x.dtype, device=x.device)
    out = x[positions] if positions else x
    return torch.where(inside.reshape((*inside.shape, *(1,) * (out.ndim - inside.ndim))), out, math.nan)


def _written(x: Any, place: _Place, src: Any, is_sum: bool) -> Any:
    positions, inside = place
    if not positions:
        return x + src * inside if is_sum else src.where(inside, x)
    return x.index_put(tuple(p[inside] for p in positions), src[inside], accumulate=is_sum)


def _table(torch: Any) -> dict[str, Callable[..., Any]]:
    def take(x: Any, indices: Any, axis: int | None, mode: str = "") -> Any:
        x, lead = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
        place = _located(torch, indices, x.shape[lead], mode)
        first = _read(torch, x.movedim(lead, 0), ((place[0],), place[1]))
        if first.ndim == 0 and indices.ndim + x.ndim > 1:
            first = first.expand(*indices.shape, *x.shape[:lead], *x.shape[lead + 1 :])
        return first.movedim(tuple(range(indices.ndim)), tuple(range(lead, lead + indices.ndim)))

    def take_dx(dy: Any, indices: Any, shape: _Ints, axis: int | None, mode: str = "") -> Any:
        full, lead = ((math.prod(shape),), 0) if axis is None else (shape, axis % len(shape))
        place = _located(torch, indices, full[lead], mode)
        first = dy.movedim(tuple(range(lead, lead + indices.ndim)), tuple(range(indices.ndim)))
        zeros = dy.new_zeros(full).movedim(lead, 0)
        return _written(zeros, ((place[0],), place[1]), first, True).movedim(0, lead).reshape(shape)

    def scattered(x: Any, axis: int, indices: Any, src: Any, reduction: str = "add") -> Any:
        return _written(x, _along(torch, indices, axis, x.shape), src, reduction == "add")

    def scattered_nd(x: Any, indices: Any, src: Any, reduction: str) -> Any:
        return _written(x, _coordinates(torch, indices, x.shape, 0), src, reduction == "add")

    def gather_nd_dx(dy: Any, indices: Any, shape: _Ints, batch_dims: int) -> Any:
        return _written(dy.new_zeros(shape), _coordinates(torch, indices, shape, batch_dims), dy, True)

    return {
        "embedding": lambda weight, indices: take(weight, indices, 0),
        "embedding_dx": lambda dy, indices, count: take_dx(dy, indices, (count, *dy.shape[indices.ndim :]), 0),
        "gather": lambda x, axis, indices: _read(torch, x, _along(torch, indices, axis, x.shape)),
        "gather_dx": lambda dy, axis, indices, shape: scattered(dy.new_zeros(shape), axis, indices, dy),
        "gather_nd": lambda x, indices, batch: _read(torch, x, _coordinates(torch, indices, x.shape, batch)),
        "gather_nd_dx": gather_nd_dx,
        "index_select": lambda x, axis, indices: take(x, indices, axis),
        "scatter_add": scattered,
        "scatter_elements": scattered,
        "scatter_nd": scattered_nd,
        "take": take,
        "take_dx": take_dx,
    }


def _named(name: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda torch: _table(torch)[name]


_NAMES = ("embedding", "embedding_dx", "gather", "gather_dx", "gather_nd", "gather_nd_dx", "index_select",
          "scatter_add", "scatter_elements", "scatter_nd", "take", "take_dx")  # fmt: skip

complex_only({name: _named(name) for name in _NAMES})
