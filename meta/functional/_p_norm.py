"""The p-norm of vectors, for functions that measure lengths and distances, and roots."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import T
from meta.dtype import is_complex


def p_norm(x: T, p: float, axis: Any = -1, keepdims: bool = False) -> T:
    """sum(|x|**p)**(1/p) over axes: for p = inf and -inf the largest and the smallest |x|, for 0 the number of elements
    that are not 0. Elements of 0, and vectors of zeros, have the gradient 0, as in torch."""
    x = meta.abs(x) if is_complex(x.dtype) else x
    if math.isinf(p):
        return (meta.max if p > 0 else meta.min)(meta.abs(x), axis, keepdims)
    if p == 0:
        return meta.sum(meta.cast(meta.not_equal(x, 0), x.dtype), axis, keepdims)
    if p == 1:
        return meta.sum(meta.abs(x), axis, keepdims)
    if p == 2:
        return root(meta.sum(x * x, axis, keepdims), 2)
    is_zero = meta.equal(x, 0)
    powers = meta.power(meta.where(is_zero, 1, meta.abs(x)), p)
    return root(meta.sum(meta.where(is_zero, 0 if p > 0 else math.inf, powers), axis, keepdims), p)


def root(total: T, p: float) -> T:
    """total**(1/p), with the gradient 0 at 0."""
    is_zero = meta.equal(total, 0)
    safe = meta.where(is_zero, 1, total)
    return meta.where(is_zero, 0 if p > 0 else math.inf, meta.sqrt(safe) if p == 2 else meta.power(safe, 1 / p))
