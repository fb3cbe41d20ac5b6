"""Complex numbers on CUDA: linear algebra, moments and scans with gradients against torch; elements at positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

from tests.python.op.test_complex_matrices import CASES, check_gradients


@pytest.mark.parametrize("case", CASES)
def test_gradients_as_in_torch(case: str) -> None:
    check_gradients(case, "cuda")


_X = np.arange(12).reshape(3, 4) * (1 - 2j)
_ROWS, _PLACES = np.array([2, 0]), np.array([[2, 0, 1, 1]])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("take", (_X, _ROWS, -2)),
        ("gather", (_X, -2, _PLACES)),
        ("gather_nd", (_X, _PLACES[:, :2].T)),
        ("scatter_add", (_X, -2, _PLACES, _X[:1])),
        ("scatter_elements", (_X, -2, _PLACES, _X[:1])),
        ("where", (_X.real > 5, _X, 1j)),
        ("cumsum", (_X, 1)),
        ("prod", (_X[1:], -1)),
    ],
)
def test_results_equal_the_results_on_the_cpu(name: str, arguments: tuple[Any, ...]) -> None:
    function, results = getattr(meta, name), []
    for device in ("cpu", "cuda"):
        results.append(function(*(meta.array(a, device=device) if isinstance(a, np.ndarray) else a for a in arguments)))
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-12)
