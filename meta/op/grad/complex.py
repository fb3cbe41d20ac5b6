"""Gradients of operators on complex numbers and their parts: the conjugates of those that meta.op.grad.rule.conjugated
computes for analytic operators, so that a step against the gradient of a real loss is its steepest descent."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex
from meta.op.grad.support import nothing


def angle_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy * (-im + re * 1j) / abs(x)**2, 0 at 0: the derivatives of atan2(im, re)."""
    if not is_complex(x.dtype):
        return nothing(x)
    re, im = meta.real(x), meta.imag(x)
    square = re * re + im * im
    scale = dy / meta.where(meta.equal(square, 0), 1, square)
    return meta.complex(-(scale * im), scale * re)


def sgn_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """The part of dy across y, divided by abs(x); 0 at 0."""
    if not is_complex(x.dtype):
        return nothing(x)
    size = meta.abs(x)
    is_zero = meta.equal(size, 0)
    across = dy - y * meta.real(meta.conj(y) * dy)
    return meta.where(is_zero, 0, across / meta.where(is_zero, 1, size))
