"""Special functions composed of operators."""

from __future__ import annotations

import math

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError

__all__ = ["mvlgamma"]


def mvlgamma(x: T, p: int) -> T:
    """The logarithm of the multivariate gamma function of dimension p, elementwise: log(pi) p (p - 1) / 4 plus the sum
    of lgamma(x - i / 2) over i from 0 to p - 1 (A. James, 1964). Integers and booleans give float32.

    p: at least 1 (ArgumentError)."""
    if p < 1:
        raise ArgumentError("mvlgamma", f"p is {p}", "an int of at least 1")
    total = meta.lgamma(x)
    for i in range(1, p):
        total = total + meta.lgamma(x - i / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi) if p > 1 else total
