"""Elementwise functions composed of operators."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dtype import Number
from meta.errors import ArgumentError

__all__ = ["fill", "float_power", "ldexp", "mvlgamma", "positive"]


def positive(x: T) -> T:
    """x itself, a number of any dtype but bool (ArgumentError), as numpy.positive and torch.positive."""
    if x.dtype == "bool":
        raise ArgumentError("positive", "'x' has dtype bool", "numbers", 'cast it: x.cast("int64")')
    return x


def float_power(x1: T, x2: T) -> T:
    """x1 ** x2 in float64, or in complex128 where one is complex. x1, x2: tensors or numbers, at least one a tensor;
    shapes broadcast."""
    has_complex = any(dtypes.is_complex(x.dtype) if _is_tensor(x) else isinstance(x, complex) for x in (x1, x2))
    dtype, number = ("complex128", complex) if has_complex else ("float64", float)
    base, exponent = (meta.cast(x, dtype) if _is_tensor(x) else number(x) for x in (x1, x2))
    return meta.power(base, exponent)


def ldexp(x1: T, x2: T) -> T:
    """x1 * 2 ** x2: the number with mantissa x1 and exponent x2. Shapes broadcast; integers give float32."""
    # The power in three factors: by itself it leaves the range of the dtype where the product is inside.
    if not _is_tensor(x2):
        exponent: Any = x2
        third = math.floor(max(min(exponent, 3000), -3000) / 3)
        rest = exponent - 2 * third
        return x1 * 2.0**third * 2.0**third * (math.inf if rest >= 1024 else 2.0**rest)
    is_mantissa_inexact = _is_tensor(x1) and dtypes.is_inexact(x1.dtype)
    wide = dtypes.real_dtype(x1.dtype) if is_mantissa_inexact else "float32"
    exponent = x2 if dtypes.is_inexact(x2.dtype) else meta.cast(x2, wide)
    if dtypes.is_complex(exponent.dtype):
        return x1 * meta.power(2.0, exponent)
    third = meta.stop_gradient(meta.floor(meta.clip(exponent, -3000.0, 3000.0) / 3.0))
    factor = meta.power(2.0, third)
    return x1 * factor * factor * meta.power(2.0, exponent - third * 2.0)


def fill(x: Tensor, value: Tensor | Number) -> Tensor:
    """A tensor of the type of x with every element `value`, a number or a 0-d tensor. Raises ArgumentError for others.
    Gradients flow to the value only."""
    return meta.broadcast_to(_held_in(value, x, "fill"), x.shape)


def _held_in(value: Tensor | Number, x: Tensor, name: str) -> Tensor:
    """A number or a 0-d tensor as a 0-d tensor of the dtype of x; integers hold no fractions."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ArgumentError(name, f"'value' has {value.ndim} axes", "a number or a 0-d tensor")
        return meta.cast(value, x.dtype)
    if isinstance(value, float) and not dtypes.is_float(x.dtype) and not value.is_integer():
        raise ArgumentError(name, f"value is {value}, x is {x.dtype}", "an integer", "cast x to a floating dtype")
    return meta.full((), value, x.dtype, x.device)


def _is_tensor(x: Tensor | Number) -> bool:
    return isinstance(x, Tensor)


def mvlgamma(x: T, p: int) -> T:
    """The logarithm of the multivariate gamma function of dimension p, elementwise: log(pi) p (p - 1) / 4 plus the sum
    of lgamma(x - i / 2) over i from 0 to p - 1 (A. James, 1964). Integers and booleans give float32.

    p: at least 1 (ArgumentError)."""
    if p < 1:
        raise ArgumentError("mvlgamma", f"p is {p}", "an int of at least 1")
    total = meta.lgamma(x)
    for i in range(1, p):
        total = total + meta.lgamma(x - i / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi) if p > 1 else total
