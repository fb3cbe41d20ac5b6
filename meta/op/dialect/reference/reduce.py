"""Reductions in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.precision import floating, widen
from meta.op.dialect.reference import plain

Array = Any
Axis = tuple[int, ...] | None


def _axes(x: Array, axis: Any) -> Any:
    """The axes for NumPy, which has none of a number: there the axis 0 of operators is left out."""
    return () if x.ndim == 0 and isinstance(axis, tuple) else axis


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis, keepdims: function(widen(x), axis=_axes(x, axis), keepdims=keepdims)


def mean(x: Array, axis: Axis, keepdims: bool) -> Array:
    """The sum divided by the number of elements; NaN without any, without numpy.mean's warning."""
    total = np.sum(x, axis=axis, keepdims=keepdims)
    count = math.prod(x.shape[a] for a in (range(x.ndim) if axis is None else axis))
    return total / np.asarray(count, total.dtype if total.dtype.kind == "f" else np.float64)


def prod_dx(x: Array, dy: Array, axis: Axis, keepdims: bool) -> Array:
    """dy times the product of the other elements; NaN at NaN."""
    x, dy, axis = widen(x), widen(dy), _axes(x, axis)
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in axis)
    outer_axes = tuple(a for a in range(x.ndim) if a not in axes)
    length = math.prod(x.shape[a] for a in axes)
    rows = np.transpose(x, outer_axes + axes).reshape([*(x.shape[a] for a in outer_axes), length])
    out = np.empty_like(rows)
    for i in range(length):
        others = np.prod(np.delete(rows, i, axis=-1), axis=-1)
        out[..., i] = np.where(np.isnan(rows[..., i]), np.nan, others)
    partial = out.reshape([x.shape[a] for a in outer_axes + axes]).transpose(np.argsort(outer_axes + axes))
    return partial * dy.reshape([1 if a in axes else d for a, d in enumerate(x.shape)])


def scan(function: Callable[..., Array], start: float) -> Callable[..., Array]:
    """A scan by a cumulative `function`, from either end. An exclusive scan begins with `start` and omits the last
    element."""

    def run(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        if x.ndim == 0:
            return np.full_like(x, start) if exclusive else x
        x = widen(x)
        x = np.moveaxis(x if x.dtype.kind in "fc" else x.astype(np.int64), axis, -1)
        x = x[..., ::-1] if reverse else x
        if exclusive:
            x = np.concatenate([np.full((*x.shape[:-1], 1), start, x.dtype), x], -1)[..., : x.shape[-1]]
        out = function(x, axis=-1)
        return np.moveaxis(out[..., ::-1] if reverse else out, -1, axis)

    return run


def running(extremum: Any, comparison: Any) -> Callable[..., Any]:
    """Running extrema along an axis and the positions of the last of equal ones; NaN wins."""

    def run(x: Array, axis: int) -> Any:
        if x.ndim == 0:
            return x, np.zeros((), np.int64)
        values = extremum.accumulate(x, axis)
        wide = widen(values)
        is_new = comparison(widen(x), wide) | np.isnan(widen(x).astype(np.float64))
        steps = np.arange(x.shape[axis]).reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
        return values, np.maximum.accumulate(np.where(is_new, steps, 0), axis)

    return run


def log_add_exp(x: Array, axis: int) -> Array:
    with np.errstate(invalid="ignore"):
        return np.logaddexp.accumulate(x.astype(np.float64), axis)


def _truth(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis, keepdims: function(x != 0, axis=_axes(x, axis), keepdims=keepdims)


plain({
    "all": _truth(np.all),
    "any": _truth(np.any),
    "argmax": _reduce(np.argmax),
    "argmin": _reduce(np.argmin),
    "cummax": running(np.maximum, np.equal),
    "cummin": running(np.minimum, np.equal),
    "cumprod": scan(np.cumprod, 1),
    "cumsum": scan(np.cumsum, 0),
    "logcumsumexp": lambda x, *how: scan(log_add_exp, -np.inf)(floating(widen(x)), *how),
    "max": _reduce(np.max),
    "mean": _reduce(mean),
    "min": _reduce(np.min),
    "prod": _reduce(np.prod),
    "prod_dx": prod_dx,
    "sum": _reduce(np.sum),
})  # fmt: skip
