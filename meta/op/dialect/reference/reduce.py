"""Reductions in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.moments import deviation, mean, variance
from meta.backend.reference.precision import floating, widen
from meta.op.dialect.reference import plain

Array = Any
Axis = tuple[int, ...] | None


def _axes(x: Array, axis: Any) -> Any:
    """The axes for NumPy, which has none of a number: there the axis 0 of operators is left out."""
    return () if x.ndim == 0 and isinstance(axis, tuple) else axis


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis, keepdims: function(widen(x), axis=_axes(x, axis), keepdims=keepdims)


def _restore_axes(y: Array, x: Array, axis: Axis) -> Array:
    """A reduced array with its reduced axes restored as size 1."""
    if y.ndim == x.ndim or axis == ():
        return y
    axes = range(x.ndim) if axis is None else sorted(a % x.ndim for a in axis)
    return np.expand_dims(y, tuple(axes))


def logsumexp(x: Array, axis: Axis, keepdims: bool) -> Array:
    x, axis = floating(widen(x)), _axes(x, axis)
    maximum = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(maximum), maximum, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total if keepdims else total.reshape(np.sum(x, axis=axis).shape)


def max_dx(x: Array, y: Array, dy: Array, axis: Axis, keepdims: bool) -> Array:
    x, y, dy, axis = widen(x), widen(y), widen(dy), _axes(x, axis)
    share = ((x == _restore_axes(y, x, axis)) | np.isnan(x)).astype(x.dtype)
    return share * _restore_axes(dy, x, axis) / np.sum(share, axis=axis, keepdims=True)


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
    return partial * _restore_axes(dy, x, axis)


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


def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    lead = x.ndim - len(shape)
    axes = tuple(d for d, n in enumerate(x.shape) if d < lead or (shape[d - lead] == 1 and n != 1))
    return np.sum(widen(x), axis=axes, keepdims=True).reshape(shape)


def _moment(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis, correction, keepdims: function(
        floating(widen(x)), axis=_axes(x, axis), ddof=correction, keepdims=keepdims
    )


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
    "logsumexp": logsumexp,
    "max": _reduce(np.max),
    "max_dx": max_dx,
    "mean": _reduce(mean),
    "min": _reduce(np.min),
    "prod": _reduce(np.prod),
    "prod_dx": prod_dx,
    "std": _moment(deviation),
    "sum": _reduce(np.sum),
    "sum_to": sum_to,
    "var": _moment(variance),
})  # fmt: skip
