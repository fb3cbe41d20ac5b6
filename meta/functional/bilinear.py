"""Bilinear forms."""

from __future__ import annotations

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError
from meta.functional._axes import equal_shapes

__all__ = ["bilinear"]


def bilinear(x1: T, x2: T, w: T, bias: T | None = None) -> T:
    """y[..., o] = sum over i and j of x1[..., i] * w[o, i, j] * x2[..., j], plus bias[o]. x1: (..., in1); x2: (...,
    in2), with equal leading axes; w: (out, in1, in2); bias: (out,). Raises ArgumentError for other shapes."""
    fits = x1.ndim >= 1 and x2.ndim >= 1 and w.ndim == 3
    fits = fits and equal_shapes(x1.shape[:-1], x2.shape[:-1])
    fits = fits and equal_shapes((x1.shape[-1], x2.shape[-1]), w.shape[1:])
    if not fits:
        problem = f"'x1' has shape {tuple(x1.shape)}, 'x2' {tuple(x2.shape)}, 'w' {tuple(w.shape)}"
        raise ArgumentError("bilinear", problem, "(..., in1), (..., in2) and (out, in1, in2)")
    y = meta.einsum("...i,oij,...j->...o", x1, w, x2)
    return y if bias is None else y + bias
