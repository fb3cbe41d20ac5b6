"""Special cases of the standard that comparisons of values do not show: signs of zeros, NaN, kinds of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta

xp: Any = meta.array_api
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -7.0, np.inf, -np.inf, np.nan], "float32")


def assert_same(out: np.ndarray, expected: np.ndarray) -> None:
    """Equal values, and zeros of equal signs."""
    np.testing.assert_array_equal(out, expected)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(out)[zeros], np.signbit(expected)[zeros])


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_zeros_of_divisions_have_the_sign_of_numpy(name: str) -> None:
    left, right = (side.ravel() for side in np.meshgrid(EDGES, EDGES[EDGES != 0]))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(left, right)
    assert_same(getattr(xp, name)(meta.array(left), meta.array(right)).numpy(), expected)


def test_the_sign_of_nan_is_nan() -> None:
    assert_same(xp.sign(meta.array(EDGES)).numpy(), np.sign(EDGES))
    assert xp.sign(xp.asarray([-2, 0, 3])).tolist() == [-1, 0, 1]


def test_the_sign_bit_of_nan_counts() -> None:
    signs = np.array([-0.0, 0.0, -1.0, -np.nan, np.nan], "float32")
    ones = meta.ones(signs.shape)
    assert xp.signbit(meta.array(signs)).tolist() == np.signbit(signs).tolist()
    assert xp.copysign(ones, meta.array(signs)).tolist() == np.copysign(np.float32(1), signs).tolist()
    assert xp.nextafter(ones, meta.array(signs)).tolist()[:3] == [np.nextafter(np.float32(1), s) for s in signs[:3]]


def test_copysign_promotes() -> None:
    assert xp.copysign(xp.asarray(1.0), xp.asarray(-2.0, dtype="float64")).dtype == "float64"


@pytest.mark.parametrize("axis", [-3, 2])
def test_an_axis_out_of_range_is_an_index_error(axis: int) -> None:
    with pytest.raises(IndexError, match=rf"\[expand_dims\] axis {axis} is out of range for rank 2; expected -2 to 1"):
        xp.expand_dims(xp.zeros(2), axis=axis)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: xp.take(x, xp.asarray([0]), axis=2),
        lambda x: xp.take_along_axis(x, xp.asarray([[0]]), axis=2),
        lambda x: xp.cumulative_sum(x, axis=2),
        lambda x: xp.diff(x, axis=2),
        lambda x: xp.unstack(x, axis=2),
        lambda x: xp.repeat(x, xp.asarray([1, 1]), axis=2),
    ],
    ids=["take", "take_along_axis", "cumulative_sum", "diff", "unstack", "repeat"],
)
def test_composed_functions_check_their_axes(call: Callable[[Any], Any]) -> None:
    with pytest.raises(IndexError, match=r"axis 2 is out of range for rank 2; expected -2 to 1"):
        call(xp.ones((2, 2)))
