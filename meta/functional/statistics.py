"""Moments and correlations of tensors, with and without NaN."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.eager.ndarray import NDArray
from meta.functional._axes import main_diagonal
from meta.functional._checks import as_dtype, require, require_float
from meta.op.grad.support import conjugate
from meta.op.rules import show

__all__ = ["corrcoef", "cov", "nanmean", "nansum", "std_mean", "var_mean"]

Axes = int | Sequence[int] | None


def var_mean(x: T, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> tuple[T, T]:
    """`var` and `mean` over the same axes."""
    return meta.var(x, axis, correction, keepdims), meta.mean(x, axis, keepdims)


def std_mean(x: T, axis: Axes = None, correction: float = 1, keepdims: bool = False) -> tuple[T, T]:
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


def cov(x: Tensor, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariances of variables, the rows of x (variables, observations): (variables, variables), or a 0-d tensor
    for one variable (observations,).

    correction: subtracted from the number of observations.  fweights: how often each was made, integers.  aweights: the
    importance of each, floating. Integers give float32; no observations give NaN. Raises TypeInferenceError for more
    axes, bool, and weights of another shape or kind. Complex variables have Hermitian covariances."""
    require("cov", x.ndim <= 2, f"'x' has shape {show(x.shape)}", "at most 2 axes")
    require("cov", x.dtype != "bool", "'x' has dtype bool", "numbers", 'cast it: x.cast("float32")')
    x = x if dtypes.is_inexact(x.dtype) else meta.cast(x, "float32")
    rows = x if x.ndim == 2 else meta.reshape(x, (1, -1 if x.ndim else 1))
    count = rows.shape[1]
    weights = _weights(rows, fweights, aweights)
    total = count if weights is None else meta.sum(weights)
    weighted = rows if weights is None else rows * weights
    centred = rows - meta.sum(weighted, 1, True) / total if weights is not None else rows - meta.mean(rows, 1, True)
    if aweights is None or weights is None:
        freedom = total - correction
    else:
        freedom = total - meta.sum(weights * meta.cast(aweights, weights.dtype)) * correction / total
    scaled = centred if weights is None else centred * weights
    products = meta.matmul(scaled, conjugate(centred), False, True)
    covariances = products / (max(freedom, 0) if isinstance(freedom, int) else meta.maximum(freedom, 0))
    return covariances if x.ndim == 2 and rows.shape[0] != 1 else meta.reshape(covariances, ())


def _weights(rows: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    weights = None
    for name, factors, of_ints in (("fweights", fweights, True), ("aweights", aweights, False)):
        if factors is None:
            continue
        kind = dtypes.is_int(factors.dtype) if of_ints else dtypes.is_float(factors.dtype)
        require("cov", kind, f"'{name}' has dtype {factors.dtype}", "integers" if of_ints else "a floating dtype")
        fits = factors.ndim == 1 and factors.shape[0] == rows.shape[1]
        require("cov", fits, f"'{name}' has shape {show(factors.shape)}", f"({rows.shape[1]},), one an observation")
        _require_no_negative(name, factors)
        weight = meta.cast(factors, dtypes.real_dtype(rows.dtype))
        weights = weight if weights is None else weights * weight
    return weights


def _require_no_negative(name: str, weights: Tensor) -> None:
    """Raise TypeInferenceError for arrays; traced values are unknown."""
    if isinstance(weights, NDArray) and weights.size:
        least = meta.min(weights).item()
        require("cov", least >= 0, f"'{name}' has the weight {least}", "weights from 0 up")


def corrcoef(x: Tensor) -> Tensor:
    """The correlations of variables, the rows of x (variables, observations): covariances divided by both standard
    deviations, from -1 to 1; a 0-d tensor for one variable.

    Raises TypeInferenceError as `cov` does."""
    covariances = cov(x)
    if covariances.ndim == 0:
        return covariances / covariances
    is_complex = dtypes.is_complex(covariances.dtype)
    diagonal = main_diagonal(covariances)
    deviations = meta.sqrt(meta.real(diagonal) if is_complex else diagonal)
    scaled = covariances / meta.expand_dims(deviations, 1) / meta.expand_dims(deviations, 0)
    if is_complex:
        real, imaginary = (meta.clip(part, -1.0, 1.0) for part in (meta.real(scaled), meta.imag(scaled)))
        return meta.complex(real, imaginary)
    return meta.clip(scaled, -1.0, 1.0)
