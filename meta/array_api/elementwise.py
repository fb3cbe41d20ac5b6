"""Elementwise functions without an operator."""

from __future__ import annotations

from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Any:
    """x between `min` and `max`, numbers or tensors that broadcast with x, in the dtype of x."""
    numbers = (bool, int, float, type(None))
    if isinstance(min, numbers) and isinstance(max, numbers):
        return meta.copy(x) if min is None and max is None else meta.clip(x, min, max)
    out = x if min is None else meta.maximum(x, min)
    out = out if max is None else meta.minimum(out, max)
    return meta.cast(out, x.dtype)


def round(x: Tensor, /) -> Any:
    """The nearest integers, even ones for halves; both parts of complex tensors are rounded."""
    if not dtypes.is_complex(x.dtype):
        return meta.round(x)
    return meta.complex(meta.round(meta.real(x)), meta.round(meta.imag(x)))


def sign(x: Tensor, /) -> Any:
    """-1, 0 or 1 by the sign of each element, x / |x| of complex tensors; NaN for NaN."""
    if dtypes.is_complex(x.dtype):
        return meta.where(meta.equal(x, 0), meta.zeros_like(x), x / meta.abs(x))
    out = meta.sign(x)
    return meta.where(meta.isnan(x), x, out) if dtypes.is_float(x.dtype) else out
