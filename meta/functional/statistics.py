"""Moments of tensors with and without NaN."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta import dtype as dtypes
from meta._generated.methods import T
from meta.functional._checks import as_dtype, require_float

__all__ = ["nanmean", "nansum", "std_mean", "var_mean"]

Axes = int | Sequence[int] | None


def var_mean(x: T, axis: Axes = None, correction: int = 1, keepdims: bool = False) -> tuple[T, T]:
    """`var` and `mean` over the same axes."""
    return meta.var(x, axis, correction, keepdims), meta.mean(x, axis, keepdims)


def std_mean(x: T, axis: Axes = None, correction: int = 1, keepdims: bool = False) -> tuple[T, T]:
    """`std` and `mean` over the same axes."""
    return meta.std(x, axis, correction, keepdims), meta.mean(x, axis, keepdims)


def nansum(x: T, axis: Axes = None, keepdims: bool = False) -> T:
    """The sum of the elements that are not NaN; 0 if all are."""
    return meta.sum(meta.where(meta.isnan(x), 0, x) if dtypes.is_float(x.dtype) else x, axis, keepdims)


def nanmean(x: T, axis: Axes = None, keepdims: bool = False) -> T:
    """The mean of the elements that are not NaN; NaN if all are."""
    require_float("nanmean", x)
    count = meta.sum(meta.logical_not(meta.isnan(x)), axis, keepdims)
    wide = as_dtype(x, dtypes.accumulation_dtype(x.dtype))
    return as_dtype(nansum(wide, axis, keepdims) / as_dtype(count, wide.dtype), x.dtype)
