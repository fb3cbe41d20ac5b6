"""Order statistics: extrema with their positions, medians, modes, quantiles. Gradients go to the elements found."""

from __future__ import annotations

from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import product
from meta.errors import ArgumentError
from meta.functional._checks import (
    as_dtype,
    axis_of,
    require,
    require_float,
    require_number,
    require_same_dtype,
)
from meta.op import rules

__all__ = [
    "aminmax", "kthvalue", "max_with_indices", "median", "min_with_indices", "mode", "msort", "nanmedian",
    "nanquantile", "quantile",
]  # fmt: skip
AMP = dict.fromkeys(("nanquantile", "quantile"), "never")

Interpolation = Literal["linear", "lower", "higher", "midpoint", "nearest"]


def max_with_indices(x: T, axis: int = -1, keepdims: bool = False) -> tuple[T, T]:
    """The largest element along an axis and its position as int64: the first of equal ones, or the first NaN."""
    return _extremum("max_with_indices", meta.argmax, x, axis, keepdims)


def min_with_indices(x: T, axis: int = -1, keepdims: bool = False) -> tuple[T, T]:
    """The smallest element along an axis and its position as int64: the first of equal ones, or the first NaN."""
    return _extremum("min_with_indices", meta.argmin, x, axis, keepdims)


def _extremum(name: str, search: Any, x: T, axis: int, keepdims: bool) -> tuple[T, T]:
    axis = axis_of(name, axis, x.ndim)
    return _picked(x, axis, search(as_dtype(x, "uint8") if x.dtype == "bool" else x, axis, True), keepdims)


def _picked(x: T, axis: int, place: T, keepdims: bool) -> tuple[T, T]:
    """The elements at positions of an axis, which are kept with size 1, and the positions."""
    if not x.ndim:
        return meta.copy(x), meta.reshape(place, ())
    values = meta.gather(x, axis, place)
    return (values, place) if keepdims else (meta.squeeze(values, axis), meta.squeeze(place, axis))


def aminmax(x: T, axis: int | None = None, keepdims: bool = False) -> tuple[T, T]:
    """The smallest and the largest element along an axis (None: of all). Equal extrema share the gradient."""
    return meta.min(x, axis, keepdims), meta.max(x, axis, keepdims)


def msort(x: T) -> T:
    """The elements sorted along axis 0."""
    return meta.sort(x, 0)


def kthvalue(x: T, k: int, axis: int = -1, keepdims: bool = False) -> tuple[T, T]:
    """The k-th smallest element along an axis, counted from 1, and its position as int64. NaN counts as largest."""
    axis = axis_of("kthvalue", axis, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    require("kthvalue", 1 <= k <= size, f"k is {k} for an axis of size {size}", f"1 to {size}")
    rank: Any = meta.full(_kept(x, axis), k - 1, "int64", x.device)
    return _picked(x, axis, meta.rank_positions(x, rank, axis), keepdims)


def _kept(x: Tensor, axis: int) -> tuple[Any, ...]:
    """The shape of x with 1 for the size of an axis."""
    return tuple(1 if n == axis else size for n, size in enumerate(x.shape))


def median(x: T, axis: int | None = None, keepdims: bool = False) -> T:
    """The middle element in ascending order, the lower one of two; NaN if there is one. Along an axis: values and their
    positions (int64); without one: only the value, NaN of no elements."""
    return _median("median", x, axis, keepdims, skip_nan=False)


def nanmedian(x: T, axis: int | None = None, keepdims: bool = False) -> T:
    """The middle one of the elements that are not NaN, as `median`; NaN if all are."""
    return _median("nanmedian", x, axis, keepdims, skip_nan=True)


def _median(name: str, x: Tensor, axis: int | None, keepdims: bool, skip_nan: bool) -> Any:
    require_number(name, x)
    if axis is None:
        if not product(x.shape):
            empty = float("nan") if dtypes.is_float(x.dtype) else dtypes.int_range(x.dtype)[0]
            return meta.full((), empty, x.dtype, x.device)
        return _median(name, meta.reshape(x, (product(x.shape),)), 0, False, skip_nan)[0]
    axis = axis_of(name, axis, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    require(name, size > 0, f"axis {axis} of shape {rules.show(x.shape)} has no elements", "at least one")
    if not x.ndim or not dtypes.is_float(x.dtype):
        middle = meta.full(_kept(x, axis), (size - 1) // 2, "int64", x.device)
    else:
        counted = size - meta.sum(meta.isnan(x), axis, True)  # NaN are the last ones in order
        if skip_nan:
            middle = meta.maximum(meta.floor_divide(counted - 1, 2), 0)
        else:
            middle = meta.where(meta.less(counted, size), counted, (size - 1) // 2)
    return _picked(x, axis, meta.rank_positions(x, middle, axis), keepdims)


def mode(x: Tensor, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along an axis, the smallest of equally frequent ones, and the position (int64) of the
    last one that equals it."""
    axis = axis_of("mode", axis, x.ndim)
    if not x.ndim:
        return _picked(x, axis, meta.argsort(x), keepdims)
    size = x.shape[axis]
    require("mode", size > 0, f"axis {axis} of shape {rules.show(x.shape)} has no elements", "at least one")
    order = meta.argsort(x, axis)
    ordered = meta.gather(x, axis, order)
    steps = meta.reshape(meta.arange(0, size, 1, "int64", x.device), [-1 if n == axis else 1 for n in range(x.ndim)])
    starts = meta.where(meta.not_equal(ordered, meta.roll(ordered, 1, axis)), steps, 0)  # of runs; the first is at 0
    lengths = (
        steps - meta.cummax(starts, axis)[0]
    )  # of the run that ends here, less 1: the longest one ends at its peak
    return _picked(x, axis, meta.gather(order, axis, meta.argmax(lengths, axis, True)), keepdims)


def quantile(
    x: Tensor, q: Tensor | float, axis: int | None = None, keepdims: bool = False,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """The values at fractions q, from 0 to 1, of the elements in ascending order; NaN if there is one.

    q: a number, or a tensor of rank 0 or 1 and the dtype of x; the result has the axis of a vector q in front.
    interpolation: between the two elements around a fraction: "linear", "lower", "higher", "midpoint", "nearest"."""
    return _quantile("quantile", x, q, axis, keepdims, interpolation, skip_nan=False)


def nanquantile(
    x: Tensor, q: Tensor | float, axis: int | None = None, keepdims: bool = False,
    interpolation: Interpolation = "linear",
) -> Tensor:  # fmt: skip
    """`quantile` of the elements that are not NaN; NaN if all are."""
    return _quantile("nanquantile", x, q, axis, keepdims, interpolation, skip_nan=True)


def _quantile(
    name: str, x: Tensor, q: Tensor | float, axis: int | None, keepdims: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    require_float(name, x)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        interpolations = '"linear", "lower", "higher", "midpoint" or "nearest"'
        raise ArgumentError(name, f"interpolation is {interpolation!r}", interpolations)
    fractions = _fractions(name, x, q)
    require(name, product(x.shape) != 0, f"'x' has shape {rules.show(x.shape)}", "at least one element")
    rank = x.ndim
    position = None if axis is None else axis_of(name, axis, rank)
    flat = meta.reshape(x, (product(x.shape),)) if position is None or not rank else meta.moveaxis(x, position, -1)
    values = _at_fractions(meta.sort(flat, -1), meta.reshape(fractions, (-1,)), interpolation, skip_nan)
    values = values[..., 0] if not fractions.ndim else meta.moveaxis(values, -1, 0)
    if not keepdims:
        return values
    added = tuple(range(rank)) if position is None else (position,)
    return meta.expand_dims(values, tuple(axis + fractions.ndim for axis in added)) if rank else values


def _fractions(name: str, x: Tensor, q: Any) -> Tensor:
    """q as a tensor."""
    if not isinstance(q, Tensor):
        require(name, isinstance(q, (int, float)) and 0 <= q <= 1, f"q is {q!r}", "a fraction from 0 to 1")
        return meta.full((), float(q), x.dtype, x.device)
    fractions = q
    require(name, fractions.ndim <= 1, f"'q' has shape {rules.show(fractions.shape)}", "rank 0 or 1")
    require_same_dtype(name, x=x, q=fractions)
    if isinstance(fractions, meta.NDArray) and fractions.size:
        low, high = (bound.item() for bound in (meta.min(fractions.detach()), meta.max(fractions.detach())))
        require(name, low >= 0 and high <= 1, f"q has values from {low} to {high}", "fractions from 0 to 1")
    return fractions


def _at_fractions(ordered: T, q: T, interpolation: str, skip_nan: bool) -> T:
    """The values at fractions q of each row of the sorted tensor, along its last axis."""
    size = ordered.shape[-1]
    missing = meta.isnan(ordered)
    last = size - 1
    if skip_nan:
        last = as_dtype(meta.maximum(size - 1 - meta.sum(missing, -1, True), 0), ordered.dtype)
    place = meta.broadcast_to(q * last, (*ordered.shape[:-1], q.shape[0]))
    if not skip_nan:
        place = meta.where(meta.any(missing, -1, True), size - 1, place)  # the last one is NaN
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": meta.floor, "higher": meta.ceil, "nearest": meta.round}[interpolation](place)
        return meta.gather(ordered, -1, meta.cast(rounded, "int64"))
    below = meta.stop_gradient(meta.floor(place))
    low = meta.gather(ordered, -1, meta.cast(below, "int64"))
    high = meta.gather(ordered, -1, meta.cast(meta.ceil(place), "int64"))
    weight = 0.5 if interpolation == "midpoint" else place - below
    difference = high - low
    is_finite = meta.isfinite(difference)
    between = low + meta.where(is_finite, difference, 0) * weight
    # Infinities have no difference, but a weighted mean, equal ones themselves.
    mean = meta.where(meta.equal(low, high), low, low * (1.0 - weight) + high * weight)
    return meta.where(is_finite, between, mean)
