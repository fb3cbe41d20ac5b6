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
@pytest.mark.parametrize("shape", [(7,), (3000,), (64, 768), (5, 4097), (1447, 1451), (4096, 768)], ids=str)
def test_random_numbers_equal_the_numbers_on_the_cpu(shape: tuple[int, ...], vm: bool) -> None:
    """Elements of one word, of two and of four of a block of random bits."""

    def draw(key: Any) -> Any:
        words, pairs = meta.uniform(key, shape), meta.randint(key, shape, 0, 1 << 40)
        mask = meta.dropout(words, key, 0.25)[1]
        return words, pairs, mask, meta.uniform(key, shape, dtype="float64"), meta.normal(key, shape, dtype="float64")

    key = np.array([-7, 11])
    expected = [x.numpy() for x in draw(meta.array(key))]
    run: Any = meta.vm.compile(meta.trace(draw), device="cuda") if vm else draw
    results = [x.numpy() for x in run(meta.array(key, device="cuda"))]
    for ours, theirs in zip(results[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(results[4], expected[4], rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("columns", [5, 1 << 20])
@pytest.mark.parametrize("vm", [False, True], ids=["eager", "vm"])
def test_kernels_of_no_rows_touch_no_memory(columns: int, vm: bool) -> None:
    """A kernel that was launched for a row that does not exist would write it, and end the process."""
    no_rows, dy = np.zeros((0, columns), "float32"), np.zeros((), "float32")
    labels = np.zeros((0,), "int64")
    for function, arrays in (
        (meta.softmax, (no_rows,)),
        (lambda x: meta.sum(x, axis=1), (no_rows,)),
        (meta.cross_entropy_dx, (no_rows, labels, dy)),
    ):
        assert run_on_cuda(function, vm, *arrays).shape[0] == 0
    np.testing.assert_array_equal(run_on_cuda(meta.exp, vm, np.zeros(3, "float32")), np.ones(3))
