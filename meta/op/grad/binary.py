"""Gradients of elementwise operators of two operands."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.op.grad.support import fit


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def power_dx1(x1: Any, x2: Any, dy: Any) -> Any:
    """dy * x2 * x1**(x2 - 1); 0 where x2 is 0, also at x1 = 0."""
    if _is_number(x2):
        if x2 == 0:
            return meta.zeros_like(x1)
        return fit(dy * (x2 * x1 ** (x2 - 1)), x1)
    base = meta.where(meta.logical_and(meta.equal(x1, 0), meta.equal(x2, 0)), 1, x1)
    return fit(dy * (x2 * base ** (x2 - 1)), x1)


def power_dx2(x1: Any, x2: Any, y: Any, dy: Any) -> Any:
    """dy * x1**x2 * log(x1); 0 at x1 = 0 unless x2 is negative."""
    if not _is_number(x1):
        constant = meta.logical_and(meta.equal(x1, 0), meta.greater_equal(x2, 0))
        return fit(dy * (y * meta.log(meta.where(constant, 1, x1))), x2)
    if x1 > 0:
        return fit(dy * y * math.log(x1), x2)
    if x1 < 0:
        return fit(dy * y * math.nan, x2)
    return fit(meta.where(meta.greater_equal(x2, 0), 0.0, dy * y * -math.inf), x2)
