"""Elementwise operators of one tensor and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import meta
from meta import dtype as dtypes
from meta.op.decompose._support import clamped, floating, in_dtype
from meta.op.decomposition import decompose, decomposition

_forward: Mapping[str, Callable[[Any, float], Any]] = {
    "celu": lambda x, alpha: meta.where(x > 0, x, alpha * meta.expm1(x / alpha)),
    "elu": lambda x, alpha: meta.where(x > 0, x, alpha * meta.expm1(x)),
    "leaky_relu": lambda x, alpha: meta.where(x > 0, x, x * alpha),
}
_of_one: Mapping[str, Callable[[Any], Any]] = {
    "deg2rad": lambda x: floating(x)[0] * (math.pi / 180),
    "frac": lambda x: x - meta.trunc(x),
    "one_minus_square": lambda x: (1.0 - x) * (x + 1.0),
    "rad2deg": lambda x: floating(x)[0] * (180 / math.pi),
    "rsqrt": lambda x: meta.reciprocal(meta.sqrt(x)),
    "square": lambda x: x * x,
}
_gradients: Mapping[str, Callable[[Any, Any], Any]] = {
    "erf_dx": lambda x, dy: dy * (meta.exp(-x * x) * (2 / math.sqrt(math.pi))),
    "reciprocal_dx": lambda y, dy: -dy * y * y,
    "relu_dx": lambda y, dy: meta.where(y <= 0, 0, dy),
    "softplus_dx": lambda x, dy: dy * meta.sigmoid(x),
    "rsqrt_dx": lambda y, dy: dy * -0.5 * (y * y * y),
    "sigmoid_dx": lambda y, dy: dy * (y * (1.0 - y)),
    "sqrt_dx": lambda y, dy: dy * 0.5 / y,
    "tanh_dx": lambda y, dy: dy * ((1.0 - y) * (y + 1.0)),
}
_gradients_by_attribute: Mapping[str, Callable[[Any, Any, float], Any]] = {
    "elu_dx": lambda x, dy, alpha: meta.where(x > 0, dy, dy * (meta.exp(x) * alpha)),
    "leaky_relu_dx": lambda x, dy, alpha: meta.where(x > 0, dy, dy * alpha),
    "threshold_dx": lambda x, dy, threshold: meta.where(x <= threshold, 0, dy),
}
decompose(_forward)
decompose(_of_one)
decompose(_gradients)
decompose(_gradients_by_attribute)


@decomposition("silu")
def silu(x: Any) -> Any:
    return x * meta.sigmoid(x)


@decomposition("silu_dx")
def silu_dx(x: Any, dy: Any) -> Any:
    s = meta.sigmoid(x)
    return dy * (s * (x * (1.0 - s) + 1.0))


_TANH_SCALE, _TANH_CUBIC = math.sqrt(2 / math.pi), 0.044715
"""The tanh form of gelu is x / 2 * (1 + tanh(scale * (x + cubic * x**3)))."""


@decomposition("gelu")
def gelu(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return x * 0.5 * meta.erfc(x * -math.sqrt(0.5))
    return x * 0.5 * (meta.tanh((x * x * _TANH_CUBIC + 1.0) * x * _TANH_SCALE) + 1.0)


@decomposition("gelu_dx")
def gelu_dx(x: Any, dy: Any, approximate: str) -> Any:
    if approximate == "none":
        density = meta.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return dy * ((meta.erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * density)
    x = meta.clip(x, -30.0, 30.0)
    square = x * x
    s = meta.sigmoid((square * _TANH_CUBIC + 1.0) * x * (2 * _TANH_SCALE))
    slope = (square * (3 * _TANH_CUBIC) + 1.0) * _TANH_SCALE
    return dy * s * (x * slope * (1.0 - s) * 2.0 + 1.0)


@decomposition("softplus")
def softplus(x: Any, beta: float, threshold: float | None) -> Any:
    scaled = x * beta
    smooth = meta.where(scaled > 0, x, 0) + meta.log1p(meta.exp(-meta.abs(scaled))) / beta
    return smooth if threshold is None else meta.where(scaled > threshold, x, smooth)


@decomposition("logit")
def logit(x: Any, eps: float | None) -> Any:
    (x,) = floating(x)  # 1 - eps rounds to float32
    limited = x if eps is None else clamped(x, eps, 1 - eps)
    return meta.log(limited / (1.0 - limited))


@decomposition("sinc")
def sinc(x: Any) -> Any:
    (x,) = floating(x)
    is_zero, nearest = meta.equal(x, 0), meta.round(x)
    sign = 1.0 - meta.square(nearest - meta.round(nearest * 0.5) * 2.0) * 2.0
    return meta.where(is_zero, 1.0, sign * meta.sin((x - nearest) * math.pi) / meta.where(is_zero, 1.0, x * math.pi))


@decomposition("nan_to_num", wide=False)
def nan_to_num(x: Any, nan: float, posinf: float | None, neginf: float | None) -> Any:
    if not dtypes.is_float(x.dtype):
        return x
    limit = dtypes.largest(x.dtype)
    high, low = limit if posinf is None else posinf, -limit if neginf is None else neginf
    y = meta.where(meta.isnan(x), nan, x)
    return meta.where(meta.equal(y, math.inf), high, meta.where(meta.equal(y, -math.inf), low, y))


@decomposition("signbit")
def signbit(x: Any) -> Any:
    """Of -0.0 by its reciprocal; of no NaN."""
    if not dtypes.is_float(x.dtype):
        return meta.less(x, 0)
    return meta.logical_or(x < 0, meta.logical_and(meta.equal(x, 0), meta.reciprocal(x) < 0))


@decomposition("threshold")
def threshold(x: Any, threshold: float, value: float) -> Any:
    """Numbers are truncated for integers."""
    threshold, value = in_dtype(x, threshold, value)
    return meta.where(x <= threshold, value, x)


@decomposition("clip_dx", bounds=True)
def clip_dx(x: Any, dy: Any, low: float | None, high: float | None) -> Any:
    inside = meta.logical_not(meta.isnan(x))
    inside = inside if low is None else meta.logical_and(inside, x >= low)
    inside = inside if high is None else meta.logical_and(inside, x <= high)
    return meta.where(inside, dy, 0)
