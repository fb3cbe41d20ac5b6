"""Gradients of elementwise operators of two operands."""

from __future__ import annotations

import cmath
import math
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex
from meta.op.grad.support import fit


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def atan2_grad(needs: tuple[bool, ...], x1: Tensor, x2: Tensor, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """dy * x2 / r**2 and -dy * x1 / r**2 with r = hypot(x1, x2), divided by r twice because r**2 may leave the range of
    the dtype; 0 at the origin, where the angle has no gradient."""
    origin = meta.equal(meta.hypot(x1, x2), 0)
    r = meta.hypot(meta.where(origin, 1, x1), x2)
    scaled = meta.where(origin, 0, dy) / r
    return fit(scaled * (x2 / r), x1) if needs[0] else None, fit(-scaled * (x1 / r), x2) if needs[1] else None


def power_dx1(x1: Tensor, x2: Tensor, dy: Tensor) -> Tensor:
    """dy * x2 * x1**(x2 - 1); 0 where x2 is 0, also where x1**-1 is not finite."""
    if _is_number(x2):
        if x2 == 0:
            return meta.zeros_like(x1)
        return fit(dy * (x2 * x1 ** (x2 - 1)), x1)
    finite = meta.isfinite(meta.reciprocal(x1))
    base = meta.where(meta.logical_or(finite, meta.not_equal(x2, 0)), x1, 1)
    return fit(dy * (x2 * base ** (x2 - 1)), x1)


def power_dx2(x1: Any, x2: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dy * x1**x2 * log(x1); 0 at x1 = 0 unless x2 is negative."""
    if not _is_number(x1):
        base = meta.cast(x1, y.dtype) if is_complex(y.dtype) and not is_complex(x1.dtype) else x1
        constant = meta.logical_and(meta.equal(x1, 0), meta.greater_equal(_real_part(x2), 0))
        return fit(dy * (y * meta.log(meta.where(constant, 1, base))), x2)
    if is_complex(y.dtype) and x1 != 0:
        return fit(dy * y * cmath.log(x1), x2)
    if isinstance(x1, complex):
        x1 = 0.0
    if x1 > 0:
        return fit(dy * y * math.log(x1), x2)
    if x1 < 0:
        return fit(dy * y * math.nan, x2)
    return fit(meta.where(meta.greater_equal(_real_part(x2), 0), 0.0, dy * y * -math.inf), x2)


def _real_part(x: Tensor) -> Tensor:
    return meta.real(x) if is_complex(x.dtype) else x
