"""Moments, sums to a shape and gradients of extrema."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.dim import SymDim, product
from meta.dtype import is_complex
from meta.op.decompose._support import floating
from meta.op.decomposition import decomposition
from meta.op.grad.reduce import keep_axes
from meta.op.rules import axis_indices

_Axis = tuple[int, ...] | None


@decomposition("var")
def var(x: Any, axis: _Axis, correction: float, keepdims: bool) -> Any:
    (x,) = floating(x)
    count = product(x.shape[a] for a in axis_indices(axis, x.ndim)) if x.ndim else 1
    if isinstance(count, SymDim):
        return None
    centred = x - meta.mean(x, axis, True)
    if is_complex(x.dtype):
        squares: Any = meta.square(meta.real(centred)) + meta.square(meta.imag(centred))
    else:
        squares = meta.square(centred)
    return meta.sum(squares, axis, keepdims) / float(max(count - correction, 0))


@decomposition("std")
def std(x: Any, axis: _Axis, correction: float, keepdims: bool) -> Any:
    """The square root of the variance, which may overflow where this does not: of x divided by its largest element."""
    (x,) = floating(x)
    if product(x.shape) == 0:
        variance = var(x, axis, correction, keepdims)
        return None if variance is None else meta.sqrt(variance)
    largest = meta.max(meta.abs(x))
    scale = meta.where(meta.logical_and(meta.greater(largest, 1), meta.less(largest, math.inf)), largest, 1)
    variance = var(x / scale, axis, correction, keepdims)
    return None if variance is None else meta.sqrt(variance) * scale


@decomposition("logsumexp")
def logsumexp(x: Any, axis: _Axis, keepdims: bool) -> Any:
    (x,) = floating(x)
    highest = meta.max(x, axis, True) if product(x.shape) != 0 else meta.zeros((), x.dtype, x.device)
    shift = meta.where(meta.isfinite(highest), highest, 0)
    total = meta.log(meta.sum(meta.exp(x - shift), axis, True)) + shift
    return total if keepdims else meta.reshape(total, meta.sum(x, axis).shape)


@decomposition("max_dx")
def max_dx(x: Any, y: Any, dy: Any, axis: _Axis, keepdims: bool) -> Any:
    """In equal shares for equal elements and NaN."""
    is_largest = meta.logical_or(meta.equal(x, keep_axes(y, x, axis, keepdims)), meta.not_equal(x, x))
    share = meta.cast(is_largest, x.dtype)
    return share * keep_axes(dy, x, axis, keepdims) / meta.sum(share, axis, True)


@decomposition("sum_to")
def sum_to(x: Any, shape: tuple[Any, ...]) -> Any:
    missing = x.ndim - len(shape)
    axes = tuple(i for i, d in enumerate(x.shape) if i < missing or (d != 1 and shape[i - missing] == 1))
    total = meta.sum(x, axes, True) if axes else x
    return meta.reshape(total, shape) if missing else total
