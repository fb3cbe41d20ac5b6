"""Helpers that gradient formulas call by name."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import Dim, SymDim
from meta.dtype import accumulation_dtype, is_complex
from meta.ir.type import TensorType

__all__ = ["fit", "nothing", "widen"]


def fit(dy: Tensor, x: Tensor | TensorType) -> Tensor:
    """`dy` as a gradient of `x`: summed over the axes that broadcasting added or stretched, cast to its dtype."""
    if dy.shape != x.shape:
        dy = meta.sum_to(dy, x.shape)
    return dy if dy.dtype == x.dtype else meta.cast(dy, x.dtype)


def conjugate(x: T) -> T:
    """The conjugate of a complex tensor; anything else itself."""
    return meta.conj(x) if is_complex(getattr(x, "dtype", "bool")) else x


def adjoint(x: T) -> T:
    """The conjugate transposes of matrices, the last two axes."""
    return conjugate(meta.swap_axis(x, -2, -1))


def widen(x: Tensor) -> Tensor:
    """`x` in the dtype in which its elements are added up."""
    dtype = accumulation_dtype(x.dtype)
    return x if x.dtype == dtype else meta.cast(x, dtype)


def share_of(count: Dim, like: Tensor | TensorType) -> Any:
    """1 / count, 1 if count is 0: a number, or for a symbolic size a 0-d tensor that tensors of the dtype of `like` are
    multiplied by."""
    if isinstance(count, SymDim):
        return meta.cast(meta.reciprocal(at_least_one(count, like)), like.dtype)
    return 1.0 / (count or 1)


def at_least_one(count: Dim, like: Tensor | TensorType) -> Any:
    """max(count, 1): a number, or for a symbolic size a 0-d tensor of the dtype in which elements of `like`
    are added up: float16 ends at 65504."""
    if isinstance(count, SymDim):
        return meta.maximum(meta.full((), count, accumulation_dtype(like.dtype), like.device), 1)
    return count or 1


def nothing(x: Tensor | TensorType) -> Any:
    """The gradient of `x` through a function that is flat almost everywhere: zeros."""
    return meta.zeros(x.shape, x.dtype, x.device)
