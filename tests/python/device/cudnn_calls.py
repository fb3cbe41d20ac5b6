"""Calls of cuDNN, their references in float64 on the CPU, and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta

LIMITS: dict[str, tuple[float, float]] = {
    "float16": (2e-3, 2e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "float32": (1e-4, 1e-4),
}
"""(rtol, atol) for sums of many products; cuDNN adds them in a different order."""


def values(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(meta.dtype.to_numpy(dtype))


def run(name: str, arrays: list[Any], *attributes: Any, **named: Any) -> list[Any]:
    """The results of cuDNN as float64."""
    operands = [None if a is None else meta.array(a, device="cuda") for a in arrays]
    with meta.with_dialect("cudnn"):
        result = getattr(meta, name)(*operands, *attributes, **named)
    flat = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r.numpy()).astype(np.float64) for r in flat]


def reference(name: str, arrays: list[Any], *attributes: Any, **named: Any) -> list[Any]:
    """The results in float64 on the CPU."""
    operands = [None if a is None else meta.array(a.astype(np.float64)) for a in arrays]
    with meta.with_dialect(["torch", "reference"]):
        result = getattr(meta, name)(*operands, *attributes, **named)
    flat = result if isinstance(result, tuple) else (result,)
    return [r.numpy() for r in flat]


def assert_close(results: list[Any], expected: list[Any], limits: tuple[float, float], terms: float = 1.0) -> None:
    """Compare results; the absolute tolerance grows with the square root of the number of `terms` in each sum."""
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_allclose(a, b, limits[0], limits[1] * max(terms, 1.0) ** 0.5)
