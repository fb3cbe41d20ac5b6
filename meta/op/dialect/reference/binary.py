"""Elementwise operators of two operands and `where`, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.backend.reference.precision import common_dtype, floating, promote
from meta.op.dialect.reference import elementwise, plain

Array = Any


def power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":  # NumPy takes a single exponent of 0.5 for a square root, which is NaN at -inf
        shape = np.broadcast_shapes(a.shape, b.shape)
        flat = (np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(-1) for x in (a, b))
        return np.power(*flat).reshape(shape)
    if a.dtype.kind in "cu":
        return np.power(a, b)
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 1, -1, 1), 0))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _shift(function: Callable[[Array, Array], Array], overflow: Callable[[Array], Array]) -> Callable[..., Array]:
    """A shift: `function` where 0 <= b < width of a, else `overflow(a)`."""

    def run(a: Array, b: Array) -> Array:
        is_defined = (b >= 0) & (b < a.dtype.itemsize * 8)
        shifted = function(a, np.where(is_defined, b, 0))
        return np.where(is_defined, shifted, overflow(a).astype(shifted.dtype))  # uint64 beside int64 is float64

    return run


def _floor_divide(a: Array, b: Array) -> Array:
    """numpy.floor_divide; floats divided by 0 give a / b as in torch, where NumPy gives NaN."""
    out = np.floor_divide(a, b)
    return np.where(b == 0, a / b, out) if a.dtype.kind == "f" else out


def _trunc_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    return np.where(b == 0, 0, (a - np.fmod(a, b)) // np.where(b == 0, 1, b))


def _on_floats(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(floating(a), floating(b))


def _nextafter(x1: Any, x2: Any) -> Array:
    """numpy.nextafter in the common dtype, float32 for integers. For bfloat16 NumPy needs ml_dtypes."""
    common = common_dtype(x1, x2)
    dtype = dtypes.to_numpy(common if dtypes.is_float(common) else "float32")
    return np.nextafter(np.asarray(x1).astype(dtype), np.asarray(x2).astype(dtype))


def where(condition: Array, x: Any, y: Any) -> Array:
    return np.where(condition, *promote(x, y))


elementwise({
    "add": np.add,
    "atan2": lambda a, b: np.arctan2(floating(a), floating(b)),
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "copysign": _on_floats(np.copysign),
    "divide": lambda a, b: np.divide(floating(a), floating(b)),
    "equal": np.equal,
    "floor_divide": _floor_divide,
    "gcd": np.gcd,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "hypot": lambda a, b: np.hypot(floating(a), floating(b)),
    "lcm": np.lcm,
    "left_shift": _shift(np.left_shift, lambda a: np.zeros_like(a)),
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.remainder,
    "multiply": np.multiply,
    "not_equal": np.not_equal,
    "power": power,
    "right_shift": _shift(np.right_shift, lambda a: np.where(a < 0, -1, 0)),
    "subtract": np.subtract,
    "trunc_divide": _trunc_divide,
    "trunc_mod": np.fmod,
})  # fmt: skip
plain({"nextafter": _nextafter, "where": where})
