"""TE computes of random operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te import philox
from meta.backend.tvm.te.elementwise import cast, const, element, select
from meta.backend.tvm.te.precision import accumulation_dtype
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

Expr = Any


def _generate(key: Any, out: Any, count: int, value: Callable[[tuple[Expr, ...]], Expr], name: str) -> Any:
    """A tensor like `out` of `value(random words)` per element. count: the words of an element."""

    def element_at(*i: Any) -> Expr:
        return cast(value(philox.words(key, philox.position(i, out.shape), count)), out.dtype)

    return te.compute(out.shape, element_at, name)


@compute("uniform", sizes=("shape",), lift=("low", "high"))
def uniform(key: Any, shape: Any, low: Any, high: Any, dtype: str, *, out: Any) -> Any:
    value_dtype = accumulation_dtype(dtype)
    lower, upper = element(low, (), value_dtype), element(high, (), value_dtype)

    def value(block: tuple[Expr, ...]) -> Expr:
        # Rounding can reach the upper bound, which is excluded.
        x = lower + philox.unit(block, dtype).astype(value_dtype) * (upper - lower)
        return select(cast(cast(x, dtype), value_dtype) < upper, x, lower)

    return _generate(key, out[0], 2 if dtype == "float64" else 1, value, "uniform")


@compute("normal", sizes=("shape",), lift=("mean", "std"))
def normal(key: Any, shape: Any, mean: Any, std: Any, dtype: str, *, out: Any) -> Any:
    value_dtype = accumulation_dtype(dtype)
    centre, scale = element(mean, (), value_dtype), element(std, (), value_dtype)
    gaussian, count = (_gaussian_float64, 4) if value_dtype == "float64" else (_gaussian_float32, 2)
    return _generate(key, out[0], count, lambda block: centre + gaussian(block) * scale, "normal")


def _gaussian_float32(block: tuple[Expr, ...]) -> Expr:
    """A standard normal number: 31 bits, offset to exclude 0, give the radius and 24 bits the angle."""
    bits = (block[0] >> tirx.const(1, "uint32")).astype("int32").astype("float32")
    fraction = (bits + const(bits, 1)) * const(bits, 2.0**-31)
    turn = philox.unit(block[1:], "float32")
    return tirx.sqrt(const(bits, -2) * te_math.log(fraction)) * _cosine_of_turn(turn)


def _gaussian_float64(block: tuple[Expr, ...]) -> Expr:
    one = tirx.const(1, "float64")
    fraction = one - philox.unit(block[:2], "float64")
    turn = philox.unit(block[2:], "float64")
    return tirx.sqrt(const(one, -2) * te_math.log(fraction)) * tirx.cos(const(one, 2 * math.pi) * turn)


def _cosine_of_turn(turn: Expr) -> Expr:
    """cos(2 pi turn) of a float32 in [0, 1): sin(2 pi v), v = |turn - 1/2| - 1/4, which vectorises."""
    return te_math.sine_of_turn(tirx.abs(turn - const(turn, 0.5)) - const(turn, 0.25))


@compute("randint", sizes=("shape",), lift=("low", "high"))
def randint(key: Any, shape: Any, low: Any, high: Any, dtype: str, *, out: Any) -> Any:
    lower, upper = element(low, (), "int64"), element(high, (), "int64")
    return _generate(key, out[0], 2, lambda block: philox.integer(block, lower, upper), "randint")


@compute("bernoulli", sizes=("shape",), lift=("p",))
def bernoulli(key: Any, shape: Any, p: Any, dtype: str, *, out: Any) -> Any:
    probability = element(p, (), "float32")
    return _generate(key, out[0], 1, lambda block: philox.bernoulli(block, probability), "bernoulli")
