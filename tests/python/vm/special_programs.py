"""Random programs of elementwise operators with special values: inputs, literals and fills."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import meta
from meta import dtype as dtypes

FLOAT_VALUES = {
    "float16": [65504.0, 6e-8, 6.1e-5],
    "bfloat16": [3.38e38, 9.2e-41, 1.2e-38],
    "float32": [3.4028234e38, 1e-45, 1.1754944e-38],
    "float64": [1.7976931348623157e308, 5e-324, 2.2250738585072014e-308],
}
COMMON = [0.0, -0.0, 1.0, -1.0, 0.1, 3.0, -2.5, math.inf, -math.inf, math.nan]
Program = Callable[[Any, Any, Any], list[Any]]


def special_values(dtype: str) -> list[Any]:
    """Values where arithmetic of `dtype` differs from that of real numbers."""
    if dtype == "bool":
        return [False, True]
    if dtypes.is_float(dtype):
        return COMMON + [sign * v for v in FLOAT_VALUES[dtype] for sign in (1, -1)]
    low, high = dtypes.int_range(dtype)
    return sorted({low, low + 1, high, high - 1, 0, 1, 2, 3, 7} | ({-1, -2} if low else set()))


def special_inputs(dtype: str) -> list[meta.NDArray]:
    """Two vectors with every pair of special values, and a third with the values in another order."""
    values = special_values(dtype)
    host = np.float64 if dtypes.is_float(dtype) else dtypes.to_numpy(dtype)
    count = len(values)
    columns = [
        [a for a in values for _ in values],
        values * count,
        [values[(i * 7 + j * 3) % count] for i in range(count) for j in range(count)],
    ]
    return [meta.array(np.array(column, host)).cast(dtype) for column in columns]


def random_program(seed: int, dtype: str, length: int) -> Program:
    """A function of three arrays of `dtype` that returns the values of `length` random calls."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        rng = random.Random(seed)
        values = [x, y, z]
        results: list[Any] = []
        for _ in range(length):
            result = _random_call(rng, values, dtype)
            results.append(result)
            if result.dtype == dtype:
                values = [*values[-6:], result]
            else:
                values = [*values[-6:], meta.where(result, rng.choice(values), _operand(rng, values, dtype))]
        return results

    return program


ARITHMETIC = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
INTEGER = ["add", "subtract", "multiply", "floor_divide", "mod", "trunc_divide", "trunc_mod", "maximum", "minimum",
           "left_shift", "right_shift", "bitwise_xor"]  # fmt: skip
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
UNARY = ["negative", "abs", "relu", "sign", "square", "copy"]
INTEGER_UNARY = ["bitwise_not"]
FLOAT_UNARY = ["floor", "ceil", "trunc", "round", "sqrt", "reciprocal"]


def _literal(rng: random.Random, dtype: str) -> Any:
    return rng.choice(special_values(dtype))


def _fill(rng: random.Random, values: list[Any], dtype: str) -> Any:
    like = rng.choice(values)
    return rng.choice([
        lambda: meta.zeros_like(like),
        lambda: meta.ones_like(like),
        lambda: meta.full_like(like, _literal(rng, dtype)),
        lambda: meta.zeros((1,), dtype),
        lambda: meta.full((1,), _literal(rng, dtype), dtype),
    ])()  # fmt: skip


def _operand(rng: random.Random, values: list[Any], dtype: str) -> Any:
    return rng.choice([
        lambda: rng.choice(values),
        lambda: rng.choice(values),
        lambda: _literal(rng, dtype),
        lambda: _fill(rng, values, dtype),
    ])()  # fmt: skip


def _random_call(rng: random.Random, values: list[Any], dtype: str) -> Any:
    is_float = dtypes.is_float(dtype)
    x = rng.choice(values)
    a, b = rng.choice([(x, _operand(rng, values, dtype)), (_operand(rng, values, dtype), x), (x, x)])
    binary = ARITHMETIC if is_float else INTEGER

    def both(names: list[str]) -> Callable[[], Any]:
        return lambda: getattr(meta, rng.choice(names))(a, b)

    def clip() -> Any:
        low, high = (_literal(rng, dtype) for _ in range(2))
        return meta.clip(x, low, high)

    def there_and_back() -> Any:
        others = dtypes.FLOATS if is_float else dtypes.INTS
        return x.cast(rng.choice([d for d in others if d != dtype])).cast(dtype)

    def negated() -> Any:
        return meta.logical_not(getattr(meta, rng.choice(COMPARISONS))(a, b))

    def either() -> Any:
        first, second = (getattr(meta, rng.choice(COMPARISONS))(a, b) for _ in range(2))
        return meta.logical_or(first, second) if rng.random() < 0.5 else meta.logical_and(first, second)

    def unary() -> Any:
        return getattr(meta, rng.choice(UNARY + (FLOAT_UNARY if is_float else INTEGER_UNARY)))(x)

    def compared_with_operand() -> Any:
        result = both(binary)()
        return getattr(meta, rng.choice(COMPARISONS))(result, rng.choice([a, b, x]))

    calls = [both(binary), both(binary), both(binary), both(COMPARISONS), unary, negated, either, there_and_back]
    return rng.choice([*calls, clip] if is_float else [*calls, compared_with_operand])()
