"""Elementwise operators of two operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta import dtype as dtypes
from meta.op.decompose._support import floating, in_dtype, promoted
from meta.op.decomposition import decompose, decomposition


@decomposition("xlogy")
def xlogy(x1: Any, x2: Any) -> Any:
    x1, x2 = floating(x1, x2)
    return meta.where(meta.logical_and(meta.equal(x1, 0), meta.equal(x2, x2)), 0, x1 * meta.log(x2))


@decomposition("xlog1py")
def xlog1py(x1: Any, x2: Any) -> Any:
    x1, x2 = floating(x1, x2)
    return meta.where(meta.logical_and(meta.equal(x1, 0), meta.equal(x2, x2)), 0, x1 * meta.log1p(x2))


@decomposition("lerp")
def lerp(x1: Any, x2: Any, weight: Any) -> Any:
    """From the nearer end, so that both ends are exact."""
    x1, x2, weight = floating(x1, x2, weight)
    distance = x2 - x1
    return meta.where(meta.abs(weight) < 0.5, x1 + weight * distance, x2 - distance * (1.0 - weight))


def _with_third(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def composed(x: Any, x1: Any, x2: Any, value: float) -> Any:
        x, x1, x2 = promoted(x, x1, x2)
        return x + combine(x1 * in_dtype(x, value)[0], x2)

    return composed


decompose({"addcdiv": _with_third(meta.divide), "addcmul": _with_third(meta.multiply)})


def _extremum(larger: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def composed(x1: Any, x2: Any) -> Any:
        """The other operand where one is NaN."""
        x1, x2 = promoted(x1, x2)
        return meta.where(meta.not_equal(x1, x1), x2, meta.where(meta.not_equal(x2, x2), x1, larger(x1, x2)))

    return composed


decompose({"fmax": _extremum(meta.maximum), "fmin": _extremum(meta.minimum)}, wide=False)


def _sum_of_powers(rate: float) -> Callable[[Any, Any], Any]:
    def composed(x1: Any, x2: Any) -> Any:
        """The larger operand, plus the logarithm of 1 + base**-d of their distance d, which is 0 for equal
        infinities."""
        x1, x2 = floating(x1, x2)
        distance = meta.where(meta.equal(x1, x2), 0, meta.abs(x1 - x2))
        return meta.maximum(x1, x2) + meta.log1p(meta.exp(distance * -rate)) * (1 / rate)

    return composed


decompose({"logaddexp": _sum_of_powers(1.0), "logaddexp2": _sum_of_powers(math.log(2.0))})


@decomposition("copysign")
def copysign(x1: Any, x2: Any) -> Any:
    x1, x2 = floating(x1, x2)
    size = meta.abs(x1)
    return meta.where(meta.signbit(x2), -size, size)


@decomposition("heaviside", wide=False)
def heaviside(x1: Any, x2: Any) -> Any:
    x1, x2 = promoted(x1, x2)
    return meta.where(meta.equal(x1, 0), x2, meta.cast(meta.greater(x1, 0), x1.dtype))


@decomposition("trunc_divide")
def trunc_divide(x1: Any, x2: Any) -> Any:
    """For floats; integers divided by 0 give 0."""
    x1, x2 = promoted(x1, x2)
    return meta.trunc(x1 / x2) if dtypes.is_float(x1.dtype) else None


def _extremum_dx(is_larger: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def composed(x1: Any, x2: Any, dy: Any) -> Any:
        """Half of the gradient where both are equal."""
        x1, x2, dy = promoted(x1, x2, dy)
        return meta.where(meta.equal(x1, x2), dy * 0.5, meta.where(is_larger(x2, x1), 0, dy))

    return composed


decompose({"maximum_dx": _extremum_dx(meta.greater), "minimum_dx": _extremum_dx(meta.less)})
