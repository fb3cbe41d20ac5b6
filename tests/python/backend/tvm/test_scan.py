"""Running sums and products: blocks of a row, blocks of columns, and what they leave over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta

CASES = [((2, 37), 1), ((5, 37), 0), ((2, 5, 19), 1), ((16,), 0)]
"""Shapes and axes: four blocks of a row and 5 elements; two blocks of columns and 5; one and 3; two blocks."""


def running(x: Any, axis: int, exclusive: bool, reverse: bool, function: Any, start: int) -> Any:
    """NumPy's running sum or product, before or after each element, from either end."""
    x = np.flip(x, axis) if reverse else x
    result = function(x, axis)
    if exclusive:
        first = np.full_like(np.take(x, [0], axis), start)
        result = np.concatenate([first, np.take(result, range(x.shape[axis] - 1), axis)], axis)
    return np.flip(result, axis) if reverse else result


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_running_sums(shape: tuple[int, ...], axis: int, exclusive: bool, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")  # of which sums are exact
    y = meta.cumsum(meta.array(x), axis, exclusive, reverse)
    np.testing.assert_array_equal(y.numpy(), running(x, axis, exclusive, reverse, np.cumsum, 0))


@pytest.mark.parametrize(("shape", "axis"), CASES[:2])
def test_running_products(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).choice([-2.0, -1.0, 0.5, 1.0], shape).astype("float32")
    np.testing.assert_array_equal(meta.cumprod(meta.array(x), axis).numpy(), np.cumprod(x, axis))


def test_what_follows_an_overflow() -> None:
    """Elements are not combined before the result for those before them is, where that could turn infinity into NaN."""
    x = np.array([1e308, 1e308, -1e308, -1e308] * 5)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(meta.cumsum(meta.array(x), 0).numpy(), np.cumsum(x))
        x = np.array([1e200, 1e200, 1e-200, 1e-200] * 5)
        np.testing.assert_array_equal(meta.cumprod(meta.array(x), 0).numpy(), np.cumprod(x))
