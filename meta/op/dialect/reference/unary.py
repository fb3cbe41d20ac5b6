"""Elementwise operators of one tensor, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.reference.precision import floating, widen
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


def erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


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


def clip(x: Array, low: float | None, high: float | None) -> Array:
    if isinstance(low, float) or isinstance(high, float):
        x = floating(x)
    if low is not None:
        x = np.maximum(x, np.asarray(low).astype(x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high).astype(x.dtype))


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
    "clip": clip,
    "copy": lambda x: x,
    "cos": _on_floats(np.cos),
    "cosh": _on_floats(np.cosh),
    "erf": _on_floats(erf),
    "erfc": _on_floats(erfc),
    "exp": _on_floats(np.exp),
    "exp2": _on_floats(exp2),
    "expm1": _on_floats(np.expm1),
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isneginf": np.isneginf,
    "isposinf": np.isposinf,
    "log": _on_floats(np.log),
    "log10": _on_floats(np.log10),
    "log1p": _on_floats(np.log1p),
    "log2": _on_floats(np.log2),
    "logical_not": np.logical_not,
    "negative": np.negative,
    "reciprocal": _on_floats(lambda x: 1 / x),
    "relu": lambda x: np.maximum(x, 0),
    "round": round_to,
    "sigmoid": _on_floats(sigmoid),
    "sign": lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)),
    "signbit": lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    "sin": _on_floats(np.sin),
    "sinh": _on_floats(np.sinh),
    "sqrt": _on_floats(np.sqrt),
    "tan": _on_floats(np.tan),
    "tanh": _on_floats(np.tanh),
    "trunc": np.trunc,
})  # fmt: skip
plain({"frexp": lambda x: np.frexp(widen(x))})
