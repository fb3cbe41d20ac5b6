"""Gradients of special functions."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor
from meta.op.grad.support import fit, widen


def i1_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dy (i0(x) - y / x); a half at 0."""
    is_zero = meta.equal(x, 0)
    return dy * meta.where(is_zero, 0.5, meta.i0(x) - y / meta.where(is_zero, 1.0, x))


def i1e_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy (i0e(x) - i1e(x) (sign(x) + 1 / x)); a half at 0. The difference of halves is computed in float32."""
    v = widen(x)
    is_zero = meta.equal(v, 0)
    slope = meta.i0e(v) - meta.i1e(v) * (meta.sign(v) + 1.0 / meta.where(is_zero, 1.0, v))
    return fit(widen(dy) * meta.where(is_zero, 0.5, slope), x)
