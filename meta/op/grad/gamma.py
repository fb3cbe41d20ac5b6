"""Gradients of the gamma function's relatives."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.op.grad.support import fit


def igamma_dx2(x1: Any, x2: Any, dy: Any) -> Any:
    """dy x2**(x1 - 1) exp(-x2) / Gamma(x1)."""
    scale = math.lgamma(x1) if isinstance(x1, (int, float)) else meta.lgamma(x1)
    return fit(dy * meta.exp(meta.xlogy(x1 - 1, x2) - x2 - scale), x2)


def igammac_dx2(x1: Any, x2: Any, dy: Any) -> Any:
    """Minus the gradient of igamma."""
    return -igamma_dx2(x1, x2, dy)
