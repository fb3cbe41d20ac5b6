"""Attention on a GPU: in float32 by ATen's memory-efficient kernels, and by Triton. The module is skipped without a
GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def skip_without(dialect: str) -> None:
    reason = meta.dialect(dialect).unavailable()
    if reason:
        pytest.skip(reason)


def results(
    device: str, dialect: str, causal: bool, q: Any, k: Any, v: Any, dy: Any, dtype: str = "float32"
) -> list[Any]:
    """The result, its logarithms and the three gradients."""
    x = [meta.array(a, device=device).cast(dtype) for a in (q, k, v, dy)]
    with meta.with_dialect(dialect):
        y, lse = meta.attention_with_lse(*x[:3], causal=causal)
        gradients = meta.attention_with_lse_dx(*x[:3], y, lse, x[3], causal=causal)
    return [r.cast("float32").numpy() for r in (y, lse, *gradients)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "queries", "keys", "features", "values"),
    [
        ((2, 3), 37, 37, 16, 16),
        ((2,), 64, 50, 20, 8),
        ((), 5, 7, 4, 4),
        ((3, 1, 2), 128, 128, 64, 64),
        ((1,), 1, 1, 8, 8),
        ((2,), 200, 300, 64, 64),
    ],
)
@pytest.mark.parametrize("dialect", ["torch", "triton"])
def test_equals_the_reference(
    dialect: str, heads: tuple[int, ...], queries: int, keys: int, features: int, values: int, causal: bool
) -> None:
    skip_without(dialect)
    rng = np.random.default_rng(0)
    shapes = (queries, features), (keys, features), (keys, values), (queries, values)
    arrays = [rng.standard_normal((*heads, *shape)).astype(np.float32) for shape in shapes]
    expected = results("cpu", "reference", causal, *arrays)
    for ours, theirs in zip(results("cuda", dialect, causal, *arrays), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 4e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize(("length", "features"), [(37, 16), (128, 64), (150, 128)])
def test_halves_in_triton(length: int, features: int, dtype: str, tolerance: float) -> None:
    skip_without("triton")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, length, features)).astype(np.float32) for _ in range(4)]
    expected = results("cpu", "reference", False, *arrays, dtype=dtype)
    for ours, theirs in zip(results("cuda", "triton", False, *arrays, dtype=dtype), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [100, 300])
def test_tf32_where_torch_allows_it(length: int) -> None:
    skip_without("triton")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, length, 128)).astype(np.float32) for _ in range(4)]
    expected = results("cpu", "reference", False, *arrays)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        actual = results("cuda", "triton", False, *arrays)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    errors = [abs(ours - theirs).max() for ours, theirs in zip(actual, expected, strict=True)]
    assert 1e-5 < max(errors) < 2e-2


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("dialect", ["torch", "triton"])
def test_infinite_scores(dialect: str, value: float) -> None:
    skip_without(dialect)
    """Those of one key, and those of all keys of a query."""  # scores of -inf are NaN here: see the dialect
    rng = np.random.default_rng(0)
    q, k, v, dy = (rng.uniform(0.5, 1, (2, 40, 8)).astype(np.float32) for _ in range(4))
    k[0, 3, 0] = q[1, 5, 0] = value
    expected = results("cpu", "reference", False, q, k, v, dy)
    for ours, theirs in zip(results("cuda", dialect, False, q, k, v, dy)[:2], expected[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
