"""Errors of sums on CUDA against float64, compared with those of torch on the same GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from benchmarks import accuracy
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

CASES = {case.name: case for case in accuracy.cases()}


@pytest.mark.parametrize("n", [1000, 3_000_000])
@pytest.mark.parametrize("name", [
    "sum, full, tenths", "sum, full 2d, uniform", "sum, last axis, tenths", "sum, outer axis, tenths",
    "sum, outer axis, wide, uniform", "sum, middle axis, tenths", "sum, full, float64", "var, full, N(1e4, 1)",
    "var, outer axis, N(1e4, 1)", "cumsum, last axis", "mse_loss", "cross_entropy", "layer_norm, mean 0",
    "batch_norm_train, result, mean 10000", "layer_norm_dwb, dscale", "gradient of a bias",
    "gradient of a scalar factor",
])  # fmt: skip
def test_errors_are_at_most_twice_as_large_as_in_torch(name: str, n: int) -> None:
    case = CASES[name]
    with meta.with_dialect("tvm"):
        eager, program, reference = accuracy.errors(case, n, "cuda", draws=1)
    assert max(eager, program) <= accuracy.allowed(case, reference)


@pytest.mark.parametrize("shape", [(20_000_000, 1), (1, 20_000_000), (20_000_000,), (5_000_000, 4)], ids=str)
def test_float32_sums_count_beyond_2_to_24(shape: tuple[int, ...]) -> None:
    """Ones of which a sum in sequence stops at 2**24."""
    axis = 1 if shape[0] == 1 else 0

    def function(x: Any) -> Any:
        return meta.sum(x, axis)

    ones = meta.ones(shape, device="cuda")
    with meta.with_dialect("tvm"):
        results = function(ones), meta.vm.compile(meta.trace(function), device="cuda")(ones)
    for result in results:
        np.testing.assert_array_equal(result.numpy(), float(shape[axis]))


@pytest.mark.parametrize("axes", [0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_all_elements_are_added_once(axes: Any) -> None:
    """Whole numbers, whose sums are exact: an element left out or added twice shows."""
    for size in (0, 1, 31, 33, 255, 257, 1025, 8191, 70_001):
        x = np.random.default_rng(size).integers(-50, 50, (3, size, 5)).astype(np.float32)
        for order in ((0, 1, 2), (2, 0, 1)):
            operand = np.ascontiguousarray(x.transpose(order))
            with meta.with_dialect("tvm"):
                result = meta.sum(meta.array(operand, device="cuda"), axes)
            np.testing.assert_array_equal(result.numpy(), operand.sum(axes))
