"""Gradients of the gamma function's relatives."""

from __future__ import annotations

import math

import meta
from meta._generated.methods import Tensor
from meta.op.grad.support import fit


def igamma_dx2(x1: Tensor, x2: Tensor, dy: Tensor) -> Tensor:
    """dy x2**(x1 - 1) exp(-x2) / Gamma(x1)."""
    scale = math.lgamma(x1) if isinstance(x1, (int, float)) else meta.lgamma(x1)
    return fit(dy * meta.exp(meta.xlogy(x1 - 1, x2) - x2 - scale), x2)


def igammac_dx2(x1: Tensor, x2: Tensor, dy: Tensor) -> Tensor:
    """Minus the gradient of igamma."""
    return -igamma_dx2(x1, x2, dy)
