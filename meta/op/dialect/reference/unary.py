"""Elementwise operators of one tensor, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.precision import floating, widen
from meta.dtype import canonical, is_float, largest
from meta.op.dialect.reference import elementwise, plain

Array = Any


def _on_floats(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of a floating array; integers and booleans are converted to float64."""
    return lambda x, *rest: function(floating(x), *rest)


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def exp2(x: Array) -> Array:
    """NumPy's has no complex numbers."""
    return np.exp(x * math.log(2)) if x.dtype.kind == "c" else np.exp2(x)


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def silu_dx(x: Array, dy: Array) -> Array:
    s = sigmoid(x)
    return dy * s * (1 + x * (1 - s))


def _tanh_argument(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def gelu(x: Array, approximate: str) -> Array:
    if approximate == "none":
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(_tanh_argument(x)))


def gelu_dx(x: Array, dy: Array, approximate: str) -> Array:
    if approximate == "none":
        density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return dy * (0.5 * (1 + erf(x / math.sqrt(2))) + x * density)
    t = np.tanh(_tanh_argument(x))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return dy * 0.5 * (1 + t + x * (1 - t * t) * slope)


def softplus(x: Array, beta: float, threshold: float | None = None) -> Array:
    z = x * beta
    smooth = np.where(z > 0, x, 0) + np.log1p(np.exp(-np.abs(z))) / beta
    return smooth if threshold is None else np.where(z > threshold, x, smooth)


def erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def logit(x: Array, eps: float | None) -> Array:
    limited = x if eps is None else clip(x, eps, 1 - eps)
    return np.log(limited / (1 - limited))


def round_to(x: Array, decimals: int) -> Array:
    if x.dtype.kind in "iub":
        return x
    if decimals == 0 or x.dtype.kind != "f":
        return np.rint(x)
    power = _as(float(f"1e{abs(decimals)}"), x)
    if decimals > 0:
        return np.where(np.isfinite(x * power), np.rint(x * power) / power, x)
    return np.where(np.isinf(x), x, x * 0 if np.isinf(power) else np.rint(x / power) * power)


def _as(number: float, x: Array) -> Array:
    """A number in the dtype of an array."""
    return np.asarray(number).astype(x.dtype)


def nan_to_num(x: Array, nan: float, posinf: float | None, neginf: float | None) -> Array:
    dtype = canonical(x.dtype)
    if not is_float(dtype):
        return x
    limit, value = largest(dtype), widen(x)
    high, low = limit if posinf is None else posinf, -limit if neginf is None else neginf
    value = np.where(np.isnan(value), nan, value)
    return np.where(value == np.inf, high, np.where(value == -np.inf, low, value))


def clip(x: Array, low: float | None, high: float | None) -> Array:
    if isinstance(low, float) or isinstance(high, float):
        x = floating(x)
    if low is not None:
        x = np.maximum(x, np.asarray(low).astype(x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high).astype(x.dtype))


def clip_dx(x: Array, dy: Array, low: float | None, high: float | None) -> Array:
    inside = np.ones(x.shape, bool)
    if low is not None:
        inside &= x >= np.asarray(low).astype(x.dtype)
    if high is not None:
        inside &= x <= np.asarray(high).astype(x.dtype)
    return np.where(inside, dy, 0)


elementwise({
    "abs": np.abs,
    "acos": _on_floats(np.arccos),
    "acosh": _on_floats(np.arccosh),
    "asin": _on_floats(np.arcsin),
    "asinh": _on_floats(np.arcsinh),
    "atan": _on_floats(np.arctan),
    "atanh": _on_floats(np.arctanh),
    "bitwise_not": np.invert,
    "ceil": np.ceil,
    "celu": _on_floats(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x / alpha))),
    "clip": clip,
    "clip_dx": clip_dx,
    "copy": lambda x: x,
    "cos": _on_floats(np.cos),
    "cosh": _on_floats(np.cosh),
    "deg2rad": _on_floats(lambda x: x * (math.pi / 180)),
    "elu": _on_floats(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))),
    "elu_dx": lambda x, dy, alpha: np.where(x > 0, dy, dy * alpha * np.exp(x)),
    "erf": _on_floats(erf),
    "erf_dx": lambda x, dy: dy * (2 / math.sqrt(math.pi)) * np.exp(-x * x),
    "erfc": _on_floats(erfc),
    "exp": _on_floats(np.exp),
    "exp2": _on_floats(exp2),
    "expm1": _on_floats(np.expm1),
    "floor": np.floor,
    "frac": lambda x: x - np.trunc(x),
    "gelu": _on_floats(gelu),
    "gelu_dx": gelu_dx,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isneginf": np.isneginf,
    "isposinf": np.isposinf,
    "leaky_relu": _on_floats(lambda x, alpha: np.where(x > 0, x, x * alpha)),
    "leaky_relu_dx": lambda x, dy, alpha: np.where(x > 0, dy, dy * alpha),
    "log": _on_floats(np.log),
    "log10": _on_floats(np.log10),
    "log1p": _on_floats(np.log1p),
    "log2": _on_floats(np.log2),
    "logical_not": np.logical_not,
    "logit": lambda x, eps: logit(x if x.dtype.kind in "fc" else x.astype(np.float32), eps),  # 1 - eps rounds
    "negative": np.negative,
    "rad2deg": _on_floats(lambda x: x * (180 / math.pi)),
    "reciprocal": _on_floats(lambda x: 1 / x),
    "reciprocal_dx": lambda y, dy: -dy * y * y,
    "relu": lambda x: np.maximum(x, 0),
    "relu_dx": lambda y, dy: np.where(y <= 0, 0, dy),
    "round": round_to,
    "rsqrt": _on_floats(lambda x: 1 / np.sqrt(x)),
    "rsqrt_dx": lambda y, dy: -0.5 * dy * y**3,
    "sigmoid": _on_floats(sigmoid),
    "sigmoid_dx": lambda y, dy: dy * y * (1 - y),
    "sign": lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)),
    "signbit": lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    "silu": _on_floats(silu),
    "silu_dx": silu_dx,
    "sin": _on_floats(np.sin),
    "sinc": _on_floats(np.sinc),
    "sinh": _on_floats(np.sinh),
    "softplus": _on_floats(softplus),
    "sqrt": _on_floats(np.sqrt),
    "sqrt_dx": lambda y, dy: dy / (2 * y),
    "square": np.square,
    "tan": _on_floats(np.tan),
    "tanh": _on_floats(np.tanh),
    "tanh_dx": lambda y, dy: dy * (1 - y * y),
    "threshold": lambda x, threshold, value: np.where(x <= _as(threshold, x), _as(value, x), x),
    "threshold_dx": lambda x, dy, threshold: np.where(x <= threshold, 0, dy),
    "trunc": np.trunc,
})  # fmt: skip
plain({"frexp": lambda x: np.frexp(widen(x)), "nan_to_num": nan_to_num})
