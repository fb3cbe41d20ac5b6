"""Arrays of random numbers. Every call draws a fresh key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.device import CPU, Device
from meta.eager.ndarray import NDArray, array
from meta.errors import ArgumentError
from meta.random.generator import Generator, next_key

Shape = int | Sequence[int]
DeviceLike = Device | str


def uniform(
    shape: Shape, low: float = 0.0, high: float = 1.0, dtype: Any = "float32", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Floating-point numbers uniform in [low, high). Raises TypeInferenceError for low > high."""
    return meta.uniform(next_key(device, generator), shape, low, high, dtype)


def normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, dtype: Any = "float32", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Floating-point numbers of a normal distribution. Raises TypeInferenceError for a negative std."""
    return meta.normal(next_key(device, generator), shape, mean, std, dtype)


def randint(
    shape: Shape, low: int, high: int, dtype: Any = "int64", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Integers uniform in [low, high). Raises TypeInferenceError for an empty range or one that exceeds the dtype's."""
    return meta.randint(next_key(device, generator), shape, low, high, dtype)


def bernoulli(
    shape: Shape, p: float = 0.5, dtype: Any = "float32", device: DeviceLike = CPU, generator: Generator | None = None
) -> NDArray:
    """One with probability p, zero otherwise. Raises TypeInferenceError for p outside [0, 1]."""
    return meta.bernoulli(next_key(device, generator), shape, p, dtype)


def permutation(n: int, device: DeviceLike = CPU, generator: Generator | None = None) -> NDArray:
    """The integers 0 to n - 1 in random order, int64. Runs on the host and cannot be traced."""
    import numpy as np

    from meta.backend.reference.philox import words

    if n < 0:
        raise ArgumentError("permutation", f"n is {n}", "an int of at least 0")
    high, low, *_ = words(next_key(CPU, generator).numpy(), (n,))
    return array(np.lexsort((low, high)).astype(np.int64), device=device)
