"""Random arrays, seeds, and the keys of random operators.

    meta.random.seed(0)
    x = meta.random.normal((2, 3))
    mask = meta.bernoulli(meta.random.next_key(), (2, 3), p=0.9)

A key is an int64 tensor (seed, offset). Operators with equal keys give equal numbers, on every device, eager and
compiled. Every draw takes the next offset of a `Generator`. Keys are symbolic inside a traced function: each call of
the program draws new ones. The default generator starts with seed 0, so programs are reproducible by default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meta.lazy import missing
from meta.random.generator import Generator, default_generator, next_key, seed
from meta.random.sample import (
    bernoulli,
    exponential,
    multinomial,
    normal,
    permutation,
    poisson,
    randint,
    standard_gamma,
    uniform,
)

__all__ = [
    "Generator", "bernoulli", "default_generator", "exponential", "multinomial", "next_key", "normal", "permutation",
    "poisson", "randint", "seed", "standard_gamma", "uniform",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:
    # Hidden from type checkers, which then report names that do not exist.
    __getattr__ = partial(missing, __name__)
