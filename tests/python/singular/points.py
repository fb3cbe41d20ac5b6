"""The points at which derivatives are judged: beside singularities, at the borders of the dtype, and in the tails."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meta import dtype as dtypes

_DISTANCES = tuple(10.0**e for e in (-30, -25, -20, -16, -15, -12, -10, -9, -8, -7, -6, -5, -4, -3))
_CENTRES = (1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, 0.25, 6.0, -6.0)
_TAILS = (0.01, 0.05, 0.1, 0.3, 0.7, 0.9, 1.75, 2.6, 4.0, 5.0, 6.6, 8.0, 9.0, 10.0, 12.0, 17.0, 20.0, 27.0, 40.0, 60.0,
          88.0, 89.0, 100.0, 104.0, 128.0, 255.0, 300.0, 400.0, 700.0, 745.0, 1000.0, 1e4, 1e5, 1e8, 1e10, 1e19, 1e30,
          1e38, 1e154, 1e200, 1e300)  # fmt: skip
_FEW = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, 1e-4, -1e-4, 1e-30, 1e-12, 1 - 1e-3, 1 + 1e-6, 20.0, -20.0, 1e10,
        1e30, -1e30)  # fmt: skip
_BY_NAME = {"target": (0.0, 1.0, 0.25), "weight": (1.0, 0.5, 0.0), "pos_weight": (1.0, 3.0, 0.5)}
"""Operands that have no singular points themselves."""


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number."""
    return float(ml_dtypes.finfo(dtypes.to_numpy(dtype)).eps)


def points(names: Sequence[str], dtype: str, centres: Sequence[float], small: bool) -> list[tuple[float, ...]]:
    """Values of the operands with these names, as Python floats. centres: further numbers to look beside; small: a
    part of the points."""
    free = [name for name in names if name not in _BY_NAME]
    if len(free) == 1:
        tuples = [(x,) for x in _of_one(dtype, centres)][:: 5 if small else 1]
    elif len(free) == 2:
        few = _distinct([*_FEW, *_limits(dtype), *centres], dtype)
        tuples = [*itertools.product(few, few), *_close_pairs(dtype)][:: 11 if small else 1]
    else:
        rng, few = random.Random(len(free)), _distinct([*_FEW, *_limits(dtype)], dtype)
        tuples = [tuple(rng.choice(few) for _ in free) for _ in range(100 if small else 1000)]
    fixed = [_BY_NAME[name] for name in names if name in _BY_NAME]
    combined: list[tuple[float, ...]] = []
    for values, rest in itertools.product(tuples, itertools.product(*fixed)):
        first, others = iter(values), iter(rest)
        combined.append(tuple(next(others) if name in _BY_NAME else next(first) for name in names))
    return combined


def _distinct(values: Iterable[float], dtype: str) -> list[float]:
    """The values in `dtype` without repetitions; zeros of both signs differ."""
    with np.errstate(over="ignore"):
        rounded = np.array(list(values), np.float64).astype(dtypes.to_numpy(dtype)).astype(np.float64)
    seen: dict[Any, float] = {}
    for value in rounded.tolist():
        seen.setdefault((value, math.copysign(1, value)) if value == value else "nan", value)
    return list(seen.values())


def _limits(dtype: str) -> list[float]:
    """Denormals, the least normal number, large numbers, infinities and NaN."""
    tiny, eps, largest = dtypes.smallest_normal(dtype), epsilon(dtype), dtypes.largest(dtype)
    sizes = (tiny * eps, 3 * tiny * eps, tiny / 4, tiny, 4 * tiny, largest / 4, largest, math.inf)
    return [*sizes, *(-size for size in sizes), math.nan]


def _of_one(dtype: str, centres: Sequence[float]) -> list[float]:
    eps = epsilon(dtype)
    values = [0.0, -0.0, *_limits(dtype)]
    values += [sign * size for size in (*_TAILS, *_DISTANCES) for sign in (1, -1)]
    for centre in (*_CENTRES, *centres):
        steps = [0.0, *_DISTANCES, *(abs(centre) * eps * k for k in (0.5, 1, 2, 8))]
        values += [centre + sign * step for step in steps for sign in (1, -1)]
    return _distinct(values, dtype)


def _close_pairs(dtype: str) -> list[tuple[float, float]]:
    """Pairs whose difference or sum nearly vanishes."""
    eps = epsilon(dtype)
    near = ((x, x * (1 + k * eps)) for x in (1.25, 2.5, 1e-3, 300.0) for k in (0, 1, -1, 4))
    return [(a * s, b * t) for a, b in near for s, t in itertools.product((1, -1), repeat=2)]
