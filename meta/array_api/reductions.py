"""Statistical functions. Sums and products of signed integers are int64, of unsigned integers uint64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.functional._checks import axis_of


def sum(x: Tensor, /, *, axis: int | Sequence[int] | None = None, dtype: object = None, keepdims: bool = False) -> Any:
    """The sum along axes, computed in `dtype` if it is given."""
    dtype = _wide(x, dtype)
    return _typed(meta.sum(_typed(x, dtype), axis, keepdims), dtype)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product along axes, computed in `dtype` if it is given."""
    dtype = _wide(x, dtype)
    return _typed(meta.prod(_typed(x, dtype), axis, keepdims), dtype)


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
    return _cumulative(meta.cumsum, "cumulative_sum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Any:
    """Products of the elements up to each along an axis, which a 1-D tensor may leave out; with a 1 in front for
    `include_initial`."""
    return _cumulative(meta.cumprod, "cumulative_prod", x, axis, dtype, 1 if include_initial else None)


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


def _typed(x: Tensor, dtype: object) -> Any:
    return x if dtype is None else x.to(dtype=dtype)
