"""Sorting on CUDA by TVM against NumPy: rows that share a tile, that fill one, and longer ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
SHAPES = [
    ((1000,), -1), ((4096,), -1), ((4097,), -1), ((300_001,), -1), ((3, 5), -1), ((70, 33), -1), ((2, 20_000), -1),
    ((5000, 3), 0), ((7, 9, 11), 1), ((9, 40, 700), -1), ((1, 8193), -1), ((6, 1), 1), ((0, 5), 1), ((5, 0), 1),
]  # fmt: skip


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many equal numbers, and the extreme ones of a dtype."""
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "float" in dtype:
        x = rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0]).astype(x.dtype)
    else:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        special = np.array([info.min, info.max, 0, 1], dtype)
    return np.where(rng.random(shape) < 0.5, x, rng.choice(special, shape))


def sorted_positions(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The positions of a stable sort; NaN counts as the largest number."""
    x = x.astype("float32") if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
    if not descending:
        return np.argsort(x, axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def check(results: Any, expected: list[np.ndarray]) -> None:
    for result, array in zip(results, expected, strict=True):
        actual = result.numpy()
        assert actual.dtype == array.dtype
        np.testing.assert_array_equal(actual.view(np.uint8), np.ascontiguousarray(array).view(np.uint8))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_rows_are_sorted(shape: tuple[int, ...], axis: int, dtype: str, descending: bool) -> None:
    host = values(shape, dtype)
    size, order = host.shape[axis], sorted_positions(host, axis, descending)
    ordered = np.take_along_axis(host, order, axis)
    x = meta.array(host, device="cuda")
    with meta.with_dialect("tvm"):
        check([meta.sort(x, axis, descending), meta.argsort(x, axis, descending)], [ordered, order])
        for k in {min(size, 1), min(size, 40), size // 2, size}:
            first = [array.take(range(k), axis) for array in (ordered, order)]
            check(meta.topk(x, k, axis, descending), first)


@pytest.mark.parametrize("size", [50, 5000])
def test_programs_sort(size: int) -> None:
    """Kernels of static sizes, alone and in a CUDA graph."""
    host = values((6, size), "float32")
    order = sorted_positions(host, -1, False)
    last = sorted_positions(host, -1, True)[:, :20]
    expected = [np.take_along_axis(host, order, -1), order, np.take_along_axis(host, last, -1), last]
    with meta.with_dialect("tvm"):
        traced = meta.trace(lambda x: (meta.sort(x), meta.argsort(x), *meta.topk(x, 20)))
        program = meta.vm.compile(traced, device="cuda")
        for _ in range(4):
            check(program(meta.array(host, device="cuda")), expected)
