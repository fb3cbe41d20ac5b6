"""Reductions and scans."""

from __future__ import annotations

from typing import Any

import meta
from meta.dim import product
from meta.dtype import is_float
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import axes, in_dtype, is_tensor, position

ROWS: Rows = {"argmax": "argmax", "argmin": "argmin"}


@into(ROWS)
def sum(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return meta.sum(in_dtype(self, dtype), axes(dim), keepdim)


@into(ROWS)
def mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if not is_float(dtype or self.dtype):
        raise ArgumentError("mean", f"x is {self.dtype}, dtype {dtype}", "a floating dtype", "pass dtype")
    return meta.mean(in_dtype(self, dtype), axes(dim), keepdim)


@into(ROWS)
def prod(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return meta.prod(in_dtype(self, dtype), dim, keepdim)


@into(ROWS)
def all(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    out = meta.all(self, dim, keepdim)
    return meta.cast(out, "uint8") if self.dtype == "uint8" else out


@into(ROWS)
def any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    out = meta.any(self, dim, keepdim)
    return meta.cast(out, "uint8") if self.dtype == "uint8" else out


@into(ROWS)
def amax(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return meta.max(self, axes(dim), keepdim)


@into(ROWS)
def amin(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return meta.min(self, axes(dim), keepdim)


@into(ROWS)
def logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    return meta.logsumexp(self, axes(dim), keepdim)


@into(ROWS)
def cumsum(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return meta.cumsum(in_dtype(self, dtype), dim)


@into(ROWS)
def cumprod(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return meta.cumprod(in_dtype(self, dtype), dim)


@into(ROWS)
def var(self: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
    axis, lost = _spread(dim, unbiased, correction)
    if isinstance(lost, int):
        return meta.var(self, axis, lost, keepdim)
    kept = range(self.ndim) if axis is None else [position(d, self.ndim) for d in _listed(axis)]
    count = product([self.shape[d] for d in kept])
    rest = count - lost
    return meta.multiply(meta.var(self, axis, 0, keepdim), count / rest if rest > 0 else float("inf"))


@into(ROWS)
def std(self: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
    axis, lost = _spread(dim, unbiased, correction)
    if isinstance(lost, int):
        return meta.std(self, axis, lost, keepdim)
    return meta.sqrt(var(self, dim, unbiased, keepdim, correction=correction))


def _listed(axis: Any) -> Any:
    return axis if isinstance(axis, (list, tuple)) else (axis,)


def _spread(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, Any]:
    """Axes and correction: the second argument is `unbiased` in the overload without axes."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    lost = int(unbiased) if correction is None else correction
    return axes(dim), int(lost) if lost == int(lost) else lost


@into(ROWS)
def max(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if is_tensor(dim):
        return meta.maximum(self, dim)
    return meta.max(self) if dim is None else _extreme(self, meta.argmax(self, dim, True), dim, keepdim)


@into(ROWS)
def min(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if is_tensor(dim):
        return meta.minimum(self, dim)
    return meta.min(self) if dim is None else _extreme(self, meta.argmin(self, dim, True), dim, keepdim)


def _extreme(x: Any, where: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """Values and positions along one axis."""
    if x.ndim == 0:
        return x, where
    values = meta.gather(x, dim, where)
    return (values, where) if keepdim else (meta.squeeze(values, dim), meta.squeeze(where, dim))


@into(ROWS)
def sum_to_size(self: Any, size: Any) -> Any:
    return meta.sum_to(self, tuple(size))
