"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import is_static
from meta.dtype import is_complex, is_inexact
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row, rows, same
from meta.frontend.torch.aten._values import axes, in_dtype, is_tensor, position
from meta.frontend.torch.aten.pointwise import logaddexp
from meta.frontend.torch.aten.shape import meta_slice


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whether all or any elements are true, as uint8 for uint8."""

    def run(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        out = function(self, dim, keepdim)
        return meta.cast(out, "uint8") if self.dtype == "uint8" else out

    return run


def _extremum(pairwise: Any, reduced: Any, with_indices: Any) -> Callable[..., Any]:
    """The extremes of two tensors, of all elements, or along an axis with their positions."""

    def run(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if is_tensor(dim):
            return pairwise(self, dim)
        return reduced(self) if dim is None else with_indices(self, dim, keepdim)

    return run


rows({
    **same("aminmax", "argmax", "argmin", "cummax", "cummin", "cumulative_trapezoid", "trapezoid"),
    "_is_all_true": "all", "_is_any_true": "any", "trapz": "trapezoid",
    "sum": lambda self, dim=None, keepdim=False, *, dtype=None:
        in_dtype(meta.sum(in_dtype(self, dtype), axes(dim), keepdim), dtype),
    "prod": lambda self, dim=None, keepdim=False, *, dtype=None:
        in_dtype(meta.prod(in_dtype(self, dtype), dim, keepdim), dtype),
    "all": _logical(meta.all), "any": _logical(meta.any),
    "max": _extremum(meta.maximum, meta.max, meta.max_with_indices),
    "min": _extremum(meta.minimum, meta.min, meta.min_with_indices),
    "amax": lambda self, dim=(), keepdim=False: meta.max(self, axes(dim), keepdim),
    "amin": lambda self, dim=(), keepdim=False: meta.min(self, axes(dim), keepdim),
    "cumsum": lambda self, dim, *, dtype=None: in_dtype(meta.cumsum(in_dtype(self, dtype), dim), dtype),
    "cumprod": lambda self, dim, *, dtype=None: in_dtype(meta.cumprod(in_dtype(self, dtype), dim), dtype),
    "count_nonzero": lambda self, dim=None: meta.count_nonzero(self, axes(dim)),
    "nansum": lambda self, dim=None, keepdim=False, *, dtype=None:
        in_dtype(meta.nansum(in_dtype(self, dtype), axes(dim), keepdim), dtype),
    "nanmean": lambda self, dim=None, keepdim=False, *, dtype=None:
        meta.nanmean(in_dtype(self, dtype), axes(dim), keepdim),
    "diff": "diff",
    "std": lambda self, dim=None, unbiased=True, keepdim=False, *, correction=None:
        meta.std(self, *_spread(dim, unbiased, correction), keepdim),
    "var": lambda self, dim=None, unbiased=True, keepdim=False, *, correction=None:
        meta.var(self, *_spread(dim, unbiased, correction), keepdim),
    "var_mean": lambda self, dim=None, unbiased=True, keepdim=False, *, correction=None:
        (meta.var(self, *_spread(dim, unbiased, correction), keepdim), _mean(self, dim, keepdim)),
    "std_mean": lambda self, dim=None, unbiased=True, keepdim=False, *, correction=None:
        (meta.std(self, *_spread(dim, unbiased, correction), keepdim), _mean(self, dim, keepdim)),
    "gradient": lambda self, *, spacing=None, dim=None, edge_order=1:
        meta.gradient(self, 1 if spacing is None else spacing, dim, edge_order),
})  # fmt: skip


@row()
def mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if not is_inexact(dtype or self.dtype):
        raise ArgumentError("mean", f"x is {self.dtype}, dtype {dtype}", "a floating or complex dtype", "pass dtype")
    return meta.mean(in_dtype(self, dtype), axes(dim), keepdim)


@row("logsumexp", "special_logsumexp")
def logsumexp(self: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Any:
    if not is_complex(self.dtype):
        return meta.logsumexp(self, axes(dim), keepdim)
    largest = _largest_real(self, axes(dim))
    out = meta.log(meta.sum(meta.exp(self - largest), axes(dim), keepdims=True)) + largest
    return out if keepdim else meta.sum(out, axes(dim))  # of single elements


@row()
def logcumsumexp(self: Tensor, dim: int) -> Any:
    if not is_complex(self.dtype):
        return meta.logcumsumexp(self, dim)
    axis = position(dim, self.ndim)
    size = self.shape[axis] if self.ndim else 1
    if not is_static((size,)):
        wrong = f"x is {self.dtype} and has the unknown size {size} along dim {dim}"
        raise ArgumentError("logcumsumexp", wrong, "a known size", "compile for arguments of known sizes")
    out, reach = self, 1
    while reach < size:  # each element holds the sum of so many elements, which doubles
        sums = logaddexp(meta_slice(out, axis, reach), meta_slice(out, axis, 0, -reach))
        out = meta.concatenate((meta_slice(out, axis, 0, reach), sums), axis)
        reach *= 2
    return out + _turns(self, out, axis) * (math.tau * 1j) if size > 1 else out


def _turns(x: Tensor, out: Tensor, axis: int) -> Any:
    """How many turns the imaginary parts of `out`, logarithms of cumulative sums, are behind torch's. Adding element by
    element, torch takes a logarithm within a quarter turn of the term with the larger real part: of the new element, or
    of the sum before it."""
    x, out = meta.stop_gradient(x), meta.stop_gradient(out)
    angle, before = meta.imag(out), meta_slice(out, axis, 0, -1)
    from_element = meta.round((meta.imag(x) - angle) / math.tau)
    from_sum = meta.cumsum(meta.round((meta.imag(before) - meta_slice(angle, axis, 1)) / math.tau), axis)
    first = meta_slice(from_element, axis, 0, 1)
    from_sum = meta.concatenate((meta.zeros_like(first), from_sum), axis)
    is_larger = meta.greater_equal(meta.real(meta_slice(x, axis, 1)), meta.real(before))
    is_larger = meta.concatenate((meta.ones_like(first, "bool"), is_larger), axis)
    places = meta.cast(meta.cumsum(meta.ones_like(angle, "int64"), axis) - 1, "int64")
    last = meta.cummax(meta.where(is_larger, places, 0), axis)[0]  # the last element whose real part was the larger one
    return from_sum + meta.take_along_dim(from_element - from_sum, last, axis)


def _largest_real(x: Tensor, axes: Any) -> Any:
    """The largest real part along axes, 0 where it is infinite: subtracted from exponents, so that none overflows."""
    largest = meta.stop_gradient(meta.max(meta.real(x), axes, keepdims=True))
    return meta.where(meta.isfinite(largest), largest, 0.0)


def _spread(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, Any]:
    """Axes and correction: the second argument is `unbiased` in the overload without axes."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return axes(dim), int(unbiased) if correction is None else correction


def _mean(x: Tensor, dim: Any, keepdim: bool) -> Any:
    return meta.mean(x, None if isinstance(dim, bool) else axes(dim), keepdim)
