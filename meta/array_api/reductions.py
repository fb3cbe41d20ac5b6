"""Statistical functions. Sums and products of signed integers are int64, of unsigned integers uint64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.functional._checks import axes_of, axis_of


def sum(x: Tensor, /, *, axis: int | Sequence[int] | None = None, dtype: object = None, keepdims: bool = False) -> Any:
    """The sum along axes, computed in `dtype` if it is given."""
    dtype = _wide(x, dtype)
    return _typed(meta.sum(_typed(x, dtype), axis, keepdims), dtype)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product along axes, computed in `dtype` if it is given."""
    dtype = _wide(x, dtype)
    x = _typed(x, dtype)
    return (
        _complex_product(x, axis, keepdims)
        if dtypes.is_complex(x.dtype)
        else _typed(meta.prod(x, axis, keepdims), dtype)
    )


def var(
    x: Tensor, /, *, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: bool = False
) -> Any:
    """The sum of squared distances from the mean divided by the number of elements less `correction`."""
    return meta.var(x, axis, correction, keepdims)


def std(
    x: Tensor, /, *, axis: int | Sequence[int] | None = None, correction: float = 0.0, keepdims: bool = False
) -> Any:
    """The square root of `var`."""
    return meta.std(x, axis, correction, keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Any:
    """Sums of the elements up to each along an axis, which a 1-D tensor may leave out; with a 0 in front for
    `include_initial`."""
    return _cumulative(_running_sum, "cumulative_sum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Any:
    """Products of the elements up to each along an axis, which a 1-D tensor may leave out; with a 1 in front for
    `include_initial`."""
    return _cumulative(_running_product, "cumulative_prod", x, axis, dtype, 1 if include_initial else None)


def _cumulative(
    operator: Callable[..., Any], name: str, x: Tensor, axis: int | None, dtype: object, initial: int | None
) -> Any:
    if axis is None and x.ndim != 1:
        raise TypeInferenceError(name, f"no axis for shape {x.shape}", "an axis", "pass axis=0")
    along, dtype = axis_of(name, axis or 0, x.ndim), _wide(x, dtype)
    out = _typed(operator(_typed(x, dtype), along), dtype)
    if initial is None:
        return out
    first = meta.full((*out.shape[:along], 1, *out.shape[along + 1 :]), initial, out.dtype, out.device)
    return meta.concatenate([first, out], along)


def _wide(x: Tensor, dtype: object) -> Any:
    """The dtype of sums and products where none is given; None for the default of meta's operators."""
    return "uint64" if dtype is None and dtypes.is_unsigned(x.dtype) else dtype


def _running_sum(x: Tensor, axis: int) -> Any:
    if not dtypes.is_complex(x.dtype):
        return meta.cumsum(x, axis)
    return meta.complex(meta.cumsum(meta.real(x), axis), meta.cumsum(meta.imag(x), axis))


def _running_product(x: Tensor, axis: int) -> Any:
    """The product of complex elements in log2(size) steps: after each, every element is the product of twice as
    many."""
    if not dtypes.is_complex(x.dtype):
        return meta.cumprod(x, axis)
    step, size = 1, x.shape[axis]
    while step < size:
        head, earlier, later = (_along(x, axis, *part) for part in ((0, step), (0, size - step), (step, size)))
        x = meta.concatenate([head, later * earlier], axis)
        step *= 2
    return x


def _complex_product(x: Tensor, axis: int | Sequence[int], keepdims: bool) -> Any:
    axes = axes_of("prod", axis, x.ndim)
    keepdims_shape = tuple(1 if a in axes else size for a, size in enumerate(x.shape))
    rest = tuple(size for a, size in enumerate(x.shape) if a not in axes)
    moved = meta.transpose(x, (*(a for a in range(x.ndim) if a not in axes), *axes)) if x.ndim else x
    flat = meta.reshape(moved, (*rest, math.prod(x.shape[a] for a in axes)))
    size, last = flat.shape[-1], flat.ndim - 1
    out = (
        _along(_running_product(flat, last), last, size - 1, size) if size else meta.ones((*rest, 1), x.dtype, x.device)
    )
    return meta.reshape(out, keepdims_shape if keepdims else rest)


def _along(x: Tensor, axis: int, begin: int, end: int) -> Any:
    """The elements from begin up to end along an axis."""
    before = (0,) * axis
    return meta.strided_slice(x, (*before, begin), (*x.shape[:axis], end))


def count_nonzero(x: Tensor, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The number of elements that are not 0, as int64."""
    return meta.sum(x if x.dtype == "bool" else meta.not_equal(x, 0), axis, keepdims)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Any:
    """The differences of neighbours along an axis, n times."""
    return meta.diff(x, n, axis, prepend, append)


def _typed(x: Tensor, dtype: object) -> Any:
    return x if dtype is None else x.to(dtype=dtype)
