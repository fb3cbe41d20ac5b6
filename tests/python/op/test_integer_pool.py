"""Pooling and resizing of integers: exact for values that no float tells apart, and torch's where torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import meta

INTS = ["int64", "int32", "int16", "int8", "uint8"]
AVG = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
MAX = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
ADAPTIVE = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
SHAPES = ((2, 3, 17), (2, 2, 9, 8), (1, 2, 5, 4, 6))


def neighbours(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """The five largest values of a dtype, in random order."""
    high = np.iinfo(dtype).max
    return np.random.default_rng(0).integers(high - 4, high, shape, dtype, endpoint=True)


def as_ranks(function: Callable[[torch.Tensor], torch.Tensor], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A function that picks elements, by the places of the elements' values among all."""
    values, ranks = np.unique(x, return_inverse=True)
    return values[function(torch.from_numpy(ranks.reshape(x.shape).astype(np.float64))).numpy().astype(int)]


@pytest.fixture(params=["tvm", "reference"], autouse=True)
def _dialect(request: pytest.FixtureRequest) -> Any:
    with meta.with_dialect(request.param):
        yield


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_largest_elements(rank: int, dtype: str) -> None:
    x = neighbours(SHAPES[rank - 1], dtype)
    for args in ((2,), (3, 2, 1)):
        expected = as_ranks(lambda t: MAX[rank - 1](t, *args), x)  # noqa: B023
        y, indices = getattr(meta, f"max_pool{rank}d_with_indices")(meta.array(x), *args)
        assert np.array_equal(y.numpy(), expected)
        assert np.array_equal(getattr(meta, f"max_pool{rank}d")(meta.array(x), *args).numpy(), expected)
        flat = x.reshape(*x.shape[:2], -1)
        picked = np.take_along_axis(flat, indices.numpy().reshape(*x.shape[:2], -1).astype(np.int64), -1)
        assert np.array_equal(picked.reshape(expected.shape), expected)
    expected = as_ranks(lambda t: ADAPTIVE[rank - 1](t, 3), x)
    assert np.array_equal(getattr(meta, f"adaptive_max_pool{rank}d")(meta.array(x), 3).numpy(), expected)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_elements(mode: Any, dtype: str) -> None:
    for shape in SHAPES:
        x = neighbours(shape, dtype)
        for size in ((5,) * (len(shape) - 2), (23,) * (len(shape) - 2)):
            expected = as_ranks(lambda t: F.interpolate(t, size, mode=mode), x)  # noqa: B023
            assert np.array_equal(meta.interpolate(meta.array(x), size, None, mode).numpy(), expected)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_means_of_int64_are_torchs(rank: int) -> None:
    """Cut off towards zero, and exact: their sums wrap around in 64 bits."""
    shape = SHAPES[rank - 1]
    small = np.random.default_rng(1).integers(-20, 20, shape)
    for x in (small, neighbours(shape, "int64") // 2, neighbours(shape, "int64"), small + 2**60):
        for args, options in (
            ((2,), {}),
            ((3, 2, 1), {}),
            ((3, 2, 1), {"count_include_pad": False, "ceil_mode": True}),
        ):
            expected = AVG[rank - 1](torch.from_numpy(x), *args, **options).numpy()
            result = getattr(meta, f"avg_pool{rank}d")(meta.array(x), *args, **options)
            assert result.dtype == "int64"
            assert np.array_equal(result.numpy(), expected)


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8", "uint64"])
def test_means_of_other_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(max(info.min, -(2**40)), min(info.max, 2**40), (2, 3, 7, 9), dtype)
    expected = F.avg_pool2d(torch.from_numpy(x.astype(np.int64)), 3, 2, 1).numpy().astype(dtype)
    result = meta.avg_pool2d(meta.array(x), 3, 2, 1)
    assert result.dtype == dtype
    assert np.array_equal(result.numpy(), expected)


def test_sums_and_other_divisors() -> None:
    x = np.random.default_rng(1).integers(-(2**60), 2**60, (2, 3, 7, 9))
    for divisor in (3, -2):
        expected = F.avg_pool2d(torch.from_numpy(x), 3, 2, 1, divisor_override=divisor).numpy()
        layer = meta.nn.AvgPool2d(3, 2, 1, divisor_override=divisor)
        assert np.array_equal(layer(meta.array(x)).numpy(), expected)
    total = meta.sum_pool2d(meta.array(np.full((1, 1, 2, 2), 100, np.int8)), 2)
    assert (total.dtype, total.item()) == ("int64", 400)


def test_programs() -> None:
    x = meta.array(np.random.default_rng(1).integers(-9, 9, (2, 3, 7, 9)))
    traced = meta.trace(lambda x: (meta.avg_pool2d(x * 2, 3, 2, 1) + 1, meta.max_pool2d(x, 2)))
    for result, expected in zip(meta.vm.compile(traced)(x), traced(x), strict=True):
        assert np.array_equal(result.numpy(), expected.numpy())
