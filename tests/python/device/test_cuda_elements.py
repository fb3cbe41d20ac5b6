"""Elementwise operators on CUDA against NumPy, at sizes around the limits of a thread block, of a thread and of
shape-generic kernels. Inputs are small integers, so results are exact in every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

SHAPES = [
    (),
    (1,),
    (255, 1),
    (1, 1023),
    (2, 512),
    (1025,),
    (3, 5, 7, 11),
    (64, 3, 33, 31),
    (1 << 21,),
    (1447, 1451),
    (5000, 4999),
    (1 << 13, 1 << 12),
    (37, 101, 103, 89),
]
VM = pytest.mark.parametrize("vm", [False, True], ids=["eager", "vm"])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])


def random_array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Random small integers, which every dtype represents exactly."""
    return np.random.default_rng(seed).integers(-8, 9, shape, np.int8).astype(meta.dtype.to_numpy(dtype))


def run_on_cuda(function: Any, vm: bool, *arrays: Any) -> Any:
    operands = [meta.array(a, device="cuda") for a in arrays]
    with meta.with_dialect("tvm"):
        run = meta.vm.compile(meta.trace(function), device="cuda") if vm else function
        return run(*operands).numpy().astype(np.float32)


@VM
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_computes_every_element(shape: tuple[int, ...], dtype: str, vm: bool) -> None:
    """Sums, selections (which load both operands before the condition) and comparisons."""
    x, y = random_array(shape, dtype), random_array(shape, dtype, 1)
    a, b = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(run_on_cuda(lambda x, y: meta.add(x, y), vm, x, y), a + b)
    np.testing.assert_array_equal(run_on_cuda(lambda x, y: meta.where(x < y, x, y), vm, x, y), np.minimum(a, b))
    np.testing.assert_array_equal(run_on_cuda(lambda x, y: meta.less(x, y), vm, x, y), a < b)


@VM
@DTYPES
@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) > 1], ids=str)
def test_indexes_axes_correctly(shape: tuple[int, ...], dtype: str, vm: bool) -> None:
    """Broadcasting along the second axis, reversed axes, and a slice."""
    x, bias = random_array(shape, dtype), random_array(shape[1:2], dtype, 1)
    a, along = x.astype(np.float32), bias.astype(np.float32).reshape(-1, *[1] * (len(shape) - 2))
    np.testing.assert_array_equal(run_on_cuda(lambda x, b: meta.bias_add(x, b), vm, x, bias), a + along)
    np.testing.assert_array_equal(run_on_cuda(lambda x: meta.transpose(x), vm, x), a.T)
    half = shape[0] // 2
    np.testing.assert_array_equal(run_on_cuda(lambda x: meta.multiply(x[half:], x[half:]), vm, x), a[half:] * a[half:])
