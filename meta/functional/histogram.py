"""Counts of elements by value or interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import WHOLE, product
from meta.functional._checks import as_dtype, require, require_float, require_same_device
from meta.functional.positions import known_number
from meta.op import rules

__all__ = ["bincount", "histc", "histogram"]
AMP = "never"


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """How often 0, 1, ... occur in a vector of integers of 0 and more, as int64; or the sums of `weights` at them, as
    float32 for float32 weights and as float64 for others. The result has at least `minlength` elements.

    Raises TraceError in traced programs: the size depends on values."""
    fits = x.ndim == 1 and dtypes.is_int(x.dtype)
    require("bincount", fits, f"x is {x.dtype} of shape {rules.show(x.shape)}", "a vector of integers")
    require("bincount", minlength >= 0, f"minlength is {minlength}", "0 or more")
    least = known_number("bincount", meta.min(x)) if x.size else 0
    require("bincount", least >= 0, f"x contains {least}", "0 and more")
    size = max(known_number("bincount", meta.max(x)) + 1 if x.size else 0, minlength)
    if weights is None:
        values = meta.ones_like(x, "int64")
    else:
        alike = rules.same_shape(tuple(weights.shape), tuple(x.shape))
        require("bincount", alike, f"weights have shape {rules.show(weights.shape)}", f"{rules.show(x.shape)} like x")
        require_same_device("bincount", x, weights)
        values = as_dtype(weights, "float32" if weights.dtype == "float32" else "float64")
    return meta.scatter_add(meta.zeros((size,), values.dtype, x.device), 0, as_dtype(x, "int64"), values)


def histc(x: T, bins: int = 100, min: float = 0, max: float = 0) -> T:
    """How many elements lie in each of `bins` equal intervals from `min` to `max`, in the dtype of x; equal bounds mean
    the extrema of x. Elements outside are not counted. Raises TraceError for equal bounds in traced programs."""
    require("histc", bins > 0, f"bins is {bins}", "1 or more")
    low, high = _bounds("histc", x, None if min == max else (min, max), 1.0)
    wide = as_dtype(x, "float64" if not dtypes.is_float(x.dtype) else x.dtype)
    edges = meta.linspace(low, high, bins + 1, wide.dtype, x.device)
    return _counts(wide, edges, meta.ones_like(x), is_finite=True)


def histogram(
    x: T, bins: Any = 10, range: Sequence[float] | None = None, weights: T | None = None, density: bool = False
) -> tuple[T, T]:
    """How many elements lie in intervals, and the edges of the intervals, both in the dtype of x, floating.

    bins: the number of equal intervals of `range` (None: from the least to the greatest element), or their ascending
    edges as a vector. weights: what each element counts, of the shape of x.  density: divide by the sum and by the
    widths, so that the integral is 1. An edge belongs to the interval that it begins, the last one to the last."""
    require_float("histogram", x)
    if isinstance(bins, Tensor):
        edges: Any = bins
        fits = edges.ndim == 1 and edges.dtype == x.dtype and edges.shape[0] > 1 and range is None
        problem = f"bins are {edges.dtype} of shape {rules.show(edges.shape)}, range {range}"
        require("histogram", fits, problem, f"a vector of {x.dtype}, two edges or more, no range")
    else:
        require("histogram", bins > 0, f"bins is {bins}", "1 or more")
        low, high = _bounds("histogram", x, range, 0.5)
        edges = meta.linspace(low, high, bins + 1, x.dtype, x.device)
    if weights is not None:
        alike = rules.same_shape(tuple(weights.shape), tuple(x.shape)) and weights.dtype == x.dtype
        problem = f"weights are {weights.dtype} of shape {rules.show(weights.shape)}"
        require("histogram", alike, problem, f"{x.dtype} of shape {rules.show(x.shape)}, as x")
    counted = meta.ones_like(x) if weights is None else weights
    counts = _counts(x, edges, counted, is_finite=not isinstance(bins, Tensor))
    return (counts / (edges[1:] - edges[:-1]) / meta.sum(counts) if density else counts), edges


def _bounds(name: str, x: Tensor, bounds: Sequence[float] | None, margin: float) -> tuple[float, float]:
    """The ends of the intervals: `bounds`, or without them the extrema of x, or 0 and 1 of no elements; equal ones
    moved apart by `margin` each."""
    low, high = bounds or (0.0, 1.0)
    require(name, low <= high, f"bounds {low} and {high}", "ascending ones")
    if bounds is None and product(x.shape):
        low, high = (known_number(name, bound, float) for bound in (meta.min(x.detach()), meta.max(x.detach())))
    require(name, abs(low) < float("inf") and abs(high) < float("inf"), f"bounds {low} and {high}", "finite ones")
    return (low - margin, high + margin) if low == high else (low, high)


def _counts(x: T, edges: Any, weights: T, *, is_finite: bool) -> T:
    """The sums of `weights` by the interval in which x lies. is_finite: whether the last edge is known to be finite."""
    flat, values = (meta.reshape(t, (product(t.shape),)) for t in (x, weights))
    ends = _past_last(edges.detach(), is_finite)
    places = meta.binary_search(
        ends, flat, right=True
    )  # 0 below the first edge, one more than intervals behind the last
    counts = meta.zeros((edges.shape[0] + 1,), values.dtype, x.device)
    return meta.strided_slice(meta.scatter_add(counts, 0, places, values), (1,), (-1,))


def _past_last(edges: Any, is_finite: bool) -> Any:
    """The edges with the next number in place of the last one, which belongs to the last interval; NaN, which is larger
    than all numbers, follows infinity."""
    last = meta.strided_slice(edges, (-1,), (WHOLE,))
    infinity = meta.full_like(last, float("inf"))
    behind = meta.nextafter(last, infinity)
    if not is_finite:
        behind = meta.where(meta.equal(last, infinity), float("nan"), behind)
    return meta.strided_set(edges, behind, (-1,), (WHOLE,))
