"""Standard deviations whose variances overflow, and means and variances of bfloat16 added up in float32."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meta


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_deviations_near_the_limit_of_the_dtype(dialect: str) -> None:
    with meta.with_dialect([dialect, "tvm"]):
        for values in (np.array([1e38, 2e38, 3e38]), np.linspace(1e38, 3e38, 1000)):
            x = meta.array(values.astype(np.float32))
            assert meta.std(x).item() == pytest.approx(values.std(ddof=1), rel=1e-5)
            assert meta.std(x.cast("bfloat16")).item() == pytest.approx(values.std(ddof=1), rel=1e-2)
            assert meta.var(x).item() == math.inf
        wide = np.array([1e307, 2e307, 3e307])
        assert meta.std(meta.array(wide)).item() == pytest.approx(1e307)
        assert meta.std(meta.full((4,), 3e38, "bfloat16")).item() == 0
        assert math.isnan(meta.std(meta.array([1.0, math.inf])).item())
        small = np.array([1e-18, 2e-18, 3e-18], np.float32)
        assert meta.std(meta.array(small)).item() == pytest.approx(1e-18, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_deviations_of_large_numbers_of_both_signs(dialect: str, dtype: str) -> None:
    """Their differences overflow, their means do not."""
    with meta.with_dialect([dialect, "tvm"]):
        for values in ([3e38, -3e38, 3e38], [-3e38, 3e38]):
            x = meta.array(values).cast(dtype)
            assert meta.std(x).item() == meta.var(x).item() == math.inf
        many = np.full(1000, 3e38)
        many[[0, 7]] = -3e38
        x = meta.array(many.astype(np.float32)).cast(dtype)
        assert meta.std(x).item() == pytest.approx(x.numpy().astype(np.float64).std(ddof=1), rel=2**-8)
        assert meta.var(x).item() == math.inf


def test_bfloat16_is_added_up_in_float32() -> None:
    x = meta.array(np.random.default_rng(0).normal(100, 1, 10_000).astype(np.float32)).cast("bfloat16")
    exact = x.numpy().astype(np.float64)
    assert meta.mean(x).item() == pytest.approx(exact.mean(), rel=2**-8)
    assert meta.var(x).item() == pytest.approx(exact.var(ddof=1), rel=2**-8)


def test_the_first_of_zeros_of_both_signs_is_the_least() -> None:
    x = np.array([0.0, -0.0, 0.0], np.float32)
    for dialect in ("tvm", "reference"):
        with meta.with_dialect([dialect, "tvm"]):
            assert meta.argmin(meta.array(x)).item() == 0
            assert meta.argmax(meta.array(-x)).item() == 0
    assert meta.vm.compile(meta.trace(lambda x: meta.argmin(x)))(meta.array(x)).item() == 0
