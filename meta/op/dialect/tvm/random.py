"""TE computes of random operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from meta.op.dialect.tvm import _math, _random
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, const, element, select
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._register import compute

Expr = Any


def _each(key: Any, out: Any, value: Callable[[tuple[Expr, ...]], Expr], name: str) -> Any:
    """A tensor like `out` of `value(block of random words)`."""
    return te.compute(
        out.shape, lambda *i: cast(value(_random.words(key, _random.position(i, out.shape))), out.dtype), name
    )


@compute("uniform", sizes=("shape",), lift=("low", "high"))
def uniform(key: Any, shape: Any, low: Any, high: Any, dtype: str, *, out: Any) -> Any:
    kind = wide(dtype)
    first, last = element(low, (), kind), element(high, (), kind)

    def value(block: tuple[Expr, ...]) -> Expr:
        # Rounding can reach the upper end, which does not belong.
        x = first + _random.unit(block, dtype).astype(kind) * (last - first)
        return select(cast(cast(x, dtype), kind) < last, x, first)

    return _each(key, out[0], value, "uniform")


@compute("normal", sizes=("shape",), lift=("mean", "std"))
def normal(key: Any, shape: Any, mean: Any, std: Any, dtype: str, *, out: Any) -> Any:
    kind = wide(dtype)
    centre, scale = element(mean, (), kind), element(std, (), kind)
    gauss = _gauss64 if kind == "float64" else _gauss32
    return _each(key, out[0], lambda block: centre + gauss(block) * scale, "normal")


def _gauss32(block: tuple[Expr, ...]) -> Expr:
    """31 bits, none of them all zero, for the radius and 24 for the angle."""
    bits = (block[0] >> tirx.const(1, "uint32")).astype("int32").astype("float32")
    share = (bits + const(bits, 1)) * const(bits, 2.0**-31)
    turn = _random.unit(block[1:], "float32")
    return tirx.sqrt(const(bits, -2) * _math.log(share)) * _cosine_of_turn(turn)


def _gauss64(block: tuple[Expr, ...]) -> Expr:
    one = tirx.const(1, "float64")
    share = one - _random.unit(block[:2], "float64")
    turn = _random.unit(block[2:], "float64")
    return tirx.sqrt(const(one, -2) * _math.log(share)) * tirx.cos(const(one, 2 * math.pi) * turn)


_SINE: Final = [(-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(8)]
"""The series of sin(2 pi v) in v; its error on |v| <= 1/4 is below 1e-11."""


def _cosine_of_turn(turn: Expr) -> Expr:
    """cos(2 pi turn) of a float32 in [0, 1): sin(2 pi v), v = |turn - 1/2| - 1/4, by its series, which vectorises."""
    v = tirx.abs(turn - const(turn, 0.5)) - const(turn, 0.25)
    square = v * v
    out = const(v, _SINE[-1])
    for coefficient in reversed(_SINE[:-1]):
        out = out * square + const(v, coefficient)
    return out * v


@compute("randint", sizes=("shape",), lift=("low", "high"))
def randint(key: Any, shape: Any, low: Any, high: Any, dtype: str, *, out: Any) -> Any:
    first, last = element(low, (), "int64"), element(high, (), "int64")
    return _each(key, out[0], lambda block: _random.integer(block, first, last), "randint")


@compute("bernoulli", sizes=("shape",), lift=("p",))
def bernoulli(key: Any, shape: Any, p: Any, dtype: str, *, out: Any) -> Any:
    chance = element(p, (), "float32")
    return _each(key, out[0], lambda block: _random.happens(block, chance), "bernoulli")
