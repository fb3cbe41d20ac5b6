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
    return meta.where(meta.logical_and(meta.equal(x1, 0), meta.logical_not(meta.isnan(x2))), 0, x1 * meta.log(x2))


@decomposition("xlog1py")
def xlog1py(x1: Any, x2: Any) -> Any:
    x1, x2 = floating(x1, x2)
    return meta.where(meta.logical_and(meta.equal(x1, 0), meta.logical_not(meta.isnan(x2))), 0, x1 * meta.log1p(x2))


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


def _extremum(is_larger: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def composed(x1: Any, x2: Any) -> Any:
        """The other operand where one is NaN."""
        x1, x2 = promoted(x1, x2)
        return meta.where(meta.logical_or(is_larger(x1, x2), meta.isnan(x2)), x1, x2)

    return composed


decompose({"fmax": _extremum(meta.greater), "fmin": _extremum(meta.less)}, wide=False)


def _sum_of_powers(rate: float) -> Callable[[Any, Any], Any]:
    def composed(x1: Any, x2: Any) -> Any:
        """The larger operand, plus the logarithm of 1 + base**-d of their distance d; equal infinities have none."""
        x1, x2 = floating(x1, x2)
        tail = meta.log1p(meta.exp(meta.abs(x1 - x2) * -rate)) * (1 / rate)
        larger = meta.where(meta.greater(x1, x2), x1, x2)
        return meta.where(meta.equal(x1, x2), x1 + math.log(2.0) / rate, larger + tail)

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
    return meta.where(meta.greater(x1, 0), 1, meta.where(meta.equal(x1, 0), x2, 0))


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


@decomposition("atan2_dx")
def atan2_dx(x1: Any, x2: Any, dy: Any) -> Any:
    """dy * x2 / (x1**2 + x2**2), of operands divided by the larger one, whose squares stay in the range of the dtype; 0
    at the origin and at infinities."""
    x1, x2, dy = promoted(x1, x2, dy)
    size = meta.maximum(meta.abs(x1), meta.abs(x2))  # NaN if either is
    u, v = x1 / size, x2 / size
    is_zero = meta.logical_or(meta.equal(size, 0), meta.isinf(size))
    return meta.where(is_zero, 0, dy * (v / (u * u + v * v)) / size)


@decomposition("hypot_dx")
def hypot_dx(x1: Any, x2: Any, y: Any, dy: Any) -> Any:
    """dy * x1 / y, also where both are infinite."""
    x1, y = promoted(x1, y)
    return dy * meta.where(meta.isinf(x1), meta.sign(x1), x1 / y)
