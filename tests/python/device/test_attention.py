"""Attention in float32 on a GPU, by ATen's memory-efficient kernels. The module is skipped without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def results(device: str, dialect: str, causal: bool, q: Any, k: Any, v: Any, dy: Any) -> list[Any]:
    """The result, its logarithms and the three gradients."""
    with meta.with_dialect(dialect):
        x = [meta.array(a, device=device) for a in (q, k, v, dy)]
        y, lse = meta.scaled_dot_product_attention(*x[:3], causal=causal)
        gradients = meta.scaled_dot_product_attention_dx(*x[:3], y, lse, x[3], causal=causal)
    return [r.numpy() for r in (y, lse, *gradients)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "queries", "keys", "features", "values"),
    [
        ((2, 3), 37, 37, 16, 16),
        ((2,), 64, 50, 20, 8),
        ((), 5, 7, 4, 4),
        ((3, 1, 2), 128, 128, 64, 64),
        ((1,), 1, 1, 8, 8),
    ],
)
def test_equals_the_reference(
    heads: tuple[int, ...], queries: int, keys: int, features: int, values: int, causal: bool
) -> None:
    rng = np.random.default_rng(0)
    shapes = (queries, features), (keys, features), (keys, values), (queries, values)
    arrays = [rng.standard_normal((*heads, *shape)).astype(np.float32) for shape in shapes]
    expected = results("cpu", "reference", causal, *arrays)
    for ours, theirs in zip(results("cuda", "torch", causal, *arrays), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_infinite_scores(value: float) -> None:
    """Those of one key, and those of all keys of a query."""  # scores of -inf are NaN here: see the dialect
    rng = np.random.default_rng(0)
    q, k, v, dy = (rng.uniform(0.5, 1, (2, 40, 8)).astype(np.float32) for _ in range(4))
    k[0, 3, 0] = q[1, 5, 0] = value
    expected = results("cpu", "reference", False, q, k, v, dy)
    for ours, theirs in zip(results("cuda", "torch", False, q, k, v, dy)[:2], expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
