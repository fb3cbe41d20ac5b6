"""Differences, derivatives and integrals along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.errors import ArgumentError
from meta.functional._axes import along
from meta.functional._checks import as_dtype, axes_of, axis_of, promoted, require, require_number, require_rank
from meta.op import rules
from meta.tree import is_sequence

__all__ = ["cumulative_trapezoid", "diff", "gradient", "trapezoid", "trapz"]


def diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along an axis, n times, after `prepend` and `append` were joined to its ends; of
    bool, whether neighbours differ."""
    require_rank("diff", x, least=1)
    require("diff", n >= 0, f"n is {n}", "0 or more")
    axis = axis_of("diff", axis, x.ndim)
    if n == 0:
        return meta.copy(x)
    parts = [part for part in (prepend, x, append) if part is not None]
    out = x if len(parts) == 1 else meta.concatenate(promoted("diff", parts), axis)
    for _ in range(min(n, out.shape[axis]) if isinstance(out.shape[axis], int) else n):
        later, earlier = _part(out, axis, 1, None), _part(out, axis, 0, -1)
        out = meta.not_equal(later, earlier) if out.dtype == "bool" else later - earlier
    return out


def _part(x: T, axis: int, start: int, stop: int | None) -> T:
    """x[start:stop] along an axis, also of a symbolic size."""
    lead = (0,) * axis
    return meta.strided_slice(x, (*lead, start), (*(2**62,) * axis, 2**62 if stop is None else stop))


def trapezoid(y: T, x: T | None = None, dx: float = 1.0, axis: int = -1) -> T:
    """The integral along an axis by the trapezoidal rule. x: the places of the elements of y, a tensor that broadcasts
    to it (a vector lies along the axis); without it, dx is their distance."""
    axis, sums, widths = _trapezoids("trapezoid", y, x, axis)
    return _halved(meta.sum(sums if widths is None else sums * widths, axis), 1 if widths is not None else dx)


trapz = trapezoid


def cumulative_trapezoid(y: T, x: T | None = None, dx: float = 1.0, axis: int = -1) -> T:
    """The integrals from the first element to each of the others along an axis, as `trapezoid`."""
    axis, sums, widths = _trapezoids("cumulative_trapezoid", y, x, axis)
    return _halved(meta.cumsum(sums if widths is None else sums * widths, axis), 1 if widths is not None else dx)


def _halved(total: T, dx: float) -> T:
    return (total if dtypes.is_inexact(total.dtype) else meta.cast(total, "float32")) * (dx / 2)


def _trapezoids(name: str, y: Tensor, x: Tensor | None, axis: int) -> tuple[int, Any, Any]:
    """The axis counted from the front, the sums of neighbours, and their distances where places are given."""
    require_rank(name, y, least=1)
    require_number(name, y, "y")
    axis = axis_of(name, axis, y.ndim)
    if x is None:
        return axis, _part(y, axis, 1, None) + _part(y, axis, 0, -1), None
    require_rank(name, x, least=1)
    places = meta.reshape(x, [-1 if n == axis else 1 for n in range(y.ndim)]) if x.ndim == 1 and y.ndim > 1 else x
    if places.ndim < y.ndim:
        places = meta.reshape(places, (*(1,) * (y.ndim - places.ndim), *places.shape))
    along = axis - y.ndim + places.ndim
    fits = places.shape[along] == y.shape[axis] or (x.ndim == 1 and x.shape[0] == y.shape[axis])
    shapes = f"'x' has shape {rules.show(x.shape)}, 'y' {rules.show(y.shape)}"
    require(name, bool(fits) or places.shape[along] == 1, shapes, f"as many places as elements along axis {axis}")
    sums = _part(y, axis, 1, None) + _part(y, axis, 0, -1)
    widths = _part(places, along, 1, None) - _part(places, along, 0, -1)
    return axis - y.ndim, sums, widths


def gradient(
    x: Tensor, spacing: object = 1, axis: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivatives along axes (None: all), by differences of second order inside and of `edge_order` at the ends.

    spacing: the distance of neighbours, one for all axes or one each; or for each axis the places of the elements, a
    vector. Source: B. Fornberg, "Generation of Finite Difference Formulas on Arbitrarily Spaced Grids", 1988."""
    if edge_order not in (1, 2):
        raise ArgumentError("gradient", f"edge_order is {edge_order}", "1 or 2")
    require_rank("gradient", x, least=1)
    axes = axes_of("gradient", axis, x.ndim)
    if isinstance(axis, Sequence):
        axes = tuple(axis_of("gradient", each, x.ndim) for each in axis)  # in the order that was asked for
    spacings: list[Any] = list(spacing) if is_sequence(spacing) else [spacing] * len(axes)
    require("gradient", len(spacings) == len(axes), f"{len(spacings)} spacings for {len(axes)} axes", "one an axis")
    x = x if dtypes.is_inexact(x.dtype) else meta.cast(x, "float32")
    for each in axes:
        size = x.shape[each]
        require("gradient", bool(size > edge_order), f"axis {each} has size {size}", f"{edge_order + 1} or more")
    return tuple(_derivative(x, each, h, edge_order) for each, h in zip(axes, spacings, strict=True))


def _derivative(x: Tensor, axis: int, spacing: object, edge_order: int) -> Tensor:
    """The slopes between neighbours, each inner one weighted by the width of the interval on the other side."""
    widths = _widths(x, axis, spacing)
    slopes = (_part(x, axis, 1, None) - _part(x, axis, 0, -1)) / widths
    left, right = _width(widths, axis, 0, -1), _width(widths, axis, 1, None)
    before, after = _part(slopes, axis, 0, -1), _part(slopes, axis, 1, None)
    inside = (after * left + before * right) / (left + right)
    first, last = _part(slopes, axis, 0, 1), _part(slopes, axis, -1, None)
    if edge_order == 2:
        bend = (after - before) / (left + right)
        first = first - _part(bend * left, axis, 0, 1)
        last = last + _part(bend * right, axis, -1, None)
    return meta.concatenate([first, inside, last], axis)


def _widths(x: Tensor, axis: int, spacing: object) -> Any:
    """The distances of neighbours: a number, or a tensor along the axis."""
    if not isinstance(spacing, Tensor) or not spacing.ndim:
        return spacing
    places: Any = spacing
    fits = places.ndim == 1 and places.shape[0] == x.shape[axis]
    shape = f"places of shape {rules.show(places.shape)} for axis {axis} of size {x.shape[axis]}"
    require("gradient", bool(fits), shape, "a vector with a place for each element")
    return along(as_dtype(diff(places), x.dtype), axis, x.ndim)


def _width(widths: object, axis: int, start: int, stop: int | None) -> Any:
    return _part(widths, axis, start, stop) if isinstance(widths, Tensor) and widths.ndim else widths
