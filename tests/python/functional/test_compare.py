"""allclose, isclose and array_equal compared with torch and NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, TraceError

SPECIAL = [0.0, -0.0, 1.0, 1.0 + 1e-6, 1.001, 1e-9, -1.0, np.inf, -np.inf, np.nan, 3e38, -3e38]
PAIRS = np.array(list(product(SPECIAL, SPECIAL)), "float32").T


@pytest.mark.parametrize(
    "options",
    [{}, {"equal_nan": True}, {"rtol": 1e-2}, {"rtol": 0.0, "atol": 0.0}, {"rtol": 0.0, "atol": 2.5}],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_isclose_agrees_with_torch(dtype: str, options: dict[str, Any]) -> None:
    values = PAIRS if dtype.startswith("float") else np.array(list(product(range(5), range(5)))).T
    a, b = values.astype(dtype)
    expected = torch.isclose(torch.tensor(a), torch.tensor(b), **options).numpy()
    if dtype == "uint8":  # in torch the difference wraps around: 3 - 4 is 255
        expected = torch.isclose(torch.tensor(a).int(), torch.tensor(b).int(), **options).numpy()
    result = meta.isclose(meta.array(a), meta.array(b), **options)
    assert result.dtype == "bool"
    np.testing.assert_array_equal(result.numpy(), expected)
    assert meta.allclose(meta.array(a), meta.array(b), **options) is bool(expected.all())


def test_operands() -> None:
    x = meta.array([1.0, 2.0])
    assert meta.allclose(x, [1.0, 2.0 + 1e-7]) is True
    assert meta.allclose(np.array([1.0, 2.0]), x) is True
    assert meta.allclose(meta.array([0.1], dtype="float64"), 0.1, rtol=0, atol=0) is True
    assert meta.isclose(meta.array([2**60], dtype="int64"), 2**60 + 1, rtol=0, atol=0).tolist() == [False]
    assert meta.isclose(meta.ones((2, 1)), meta.ones((3,))).shape == (2, 3)
    with pytest.raises(
        ArgumentError, match=r"\[isclose\] the operands are float and float; expected at least one tensor"
    ):
        meta.isclose(1.0, 1.0)


def test_array_equal() -> None:
    x, nan = meta.array([1.0, 2.0]), meta.array([np.nan])
    assert meta.array_equal(x, meta.array([1, 2])) is True
    assert meta.array_equal(x, meta.array([1.0, 3.0])) is False
    assert meta.array_equal(x, meta.array([[1.0, 2.0]])) is False
    assert meta.array_equal(meta.ones((2,)), meta.ones((1,))) is False
    assert meta.array_equal(meta.zeros((0,)), meta.zeros((0,))) is True
    assert (meta.array_equal(nan, nan), meta.array_equal(nan, nan, equal_nan=True)) == (False, True)


def test_values_are_needed() -> None:
    x = meta.array([1.0])
    assert meta.vm.compile(meta.trace(lambda x: meta.isclose(x, 1.0)))(x).tolist() == [True]
    with pytest.raises(TraceError, match="value"):
        meta.vm.compile(meta.trace(lambda x: x if meta.allclose(x, 1.0) else -x))(x)


@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_negative_tolerances_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is -0.5; expected a number of at least 0"):
        meta.isclose(meta.ones(2), meta.ones(2), **{name: -0.5})
