"""Gradients of elementwise operators of two operands."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import Number, is_complex
from meta.op.grad.support import fit, widen

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def _is_number(value: object) -> TypeIs[Number]:
    return isinstance(value, (bool, int, float, complex))


def atan2_dx_dx2(x1: Tensor | Number, x2: Tensor, dy: Tensor, z: Tensor, dz: Tensor) -> Tensor:
    """dz dy (x1**2 - x2**2) / r**4, r = hypot(x1, x2), as the product of x1 - x2 and x1 + x2, which are exact where
    they are small; 0 at the origin and infinities."""
    a, b = (x if not isinstance(x, Tensor) else widen(x) for x in (x1, x2))
    r = meta.hypot(a, b)
    is_plain = meta.logical_and(meta.greater(r, 0), meta.less(r, math.inf))
    divisor = meta.where(is_plain, r, 1)
    slope = widen(dz * dy) * ((a - b) / divisor) * ((a + b) / divisor) / divisor / divisor
    return fit(meta.where(is_plain, slope, meta.where(meta.isnan(z), z, 0)), x2)


def fmax_grad(
    needs: tuple[bool, ...], x1: Tensor, x2: Tensor, dy: Tensor, is_better: Any = meta.greater_equal
) -> tuple[Tensor | None, Tensor | None]:
    """dy for the larger operand: the first if both are equal or NaN, and the other one if one is NaN."""
    first = meta.logical_or(is_better(x1, x2), meta.not_equal(x2, x2))
    dx1 = fit(meta.where(first, dy, 0), x1) if needs[0] else None
    return dx1, fit(meta.where(first, 0, dy), x2) if needs[1] else None


def fmin_grad(needs: tuple[bool, ...], x1: Tensor, x2: Tensor, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """dy for the smaller operand, otherwise as for fmax."""
    return fmax_grad(needs, x1, x2, dy, meta.less_equal)


def xlogy_dx1(x1: Tensor, x2: Tensor | Number, dy: Tensor) -> Tensor:
    """dy * log(x2); 0 where x1 is 0 and log(x2) is not finite or not a number, as x1 * log(x2) is 0 there."""
    return _log_factor(x1, x2, dy, meta.log, 0.0)


def xlog1py_dx1(x1: Tensor, x2: Tensor | Number, dy: Tensor) -> Tensor:
    """dy * log1p(x2); 0 as for xlogy."""
    return _log_factor(x1, x2, dy, meta.log1p, -1.0)


def _log_factor(x1: Tensor, x2: Tensor | Number, dy: Tensor, log: Callable[[Tensor], Tensor], pole: float) -> Tensor:
    other = meta.full_like(dy, x2) if _is_number(x2) else x2
    is_zero = meta.logical_and(meta.equal(x1, 0), meta.less_equal(other, pole))
    return fit(dy * log(meta.where(is_zero, pole + 1, other)), x1)


def power_dx1(x1: Tensor, x2: Tensor, dy: Tensor) -> Tensor:
    """dy * x2 * x1**(x2 - 1); 0 where x2 is 0, also where x1**-1 is not finite."""
    if _is_number(x2):
        if x2 == 0:
            return meta.zeros_like(x1)
        return fit(dy * (x2 * x1 ** (x2 - 1)), x1)
    is_plain = meta.logical_and(meta.isfinite(meta.reciprocal(x1)), meta.isfinite(x1))
    is_used = meta.logical_or(is_plain, meta.not_equal(x2, 0))
    base = meta.where(is_used, x1, 1)
    return fit(meta.where(is_used, dy, 0) * (x2 * base ** (x2 - 1)), x1)


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
