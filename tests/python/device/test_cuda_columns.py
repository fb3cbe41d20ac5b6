"""Reductions over outer axes on CUDA, of sizes that are split into parts, against float64 on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

SHAPES = [
    ((1000, 100), (0,)),
    ((257, 33), (0,)),
    ((256, 4096), (0,)),
    ((70001, 5), (0,)),
    ((8192, 8192), (0,)),
    ((131072, 64), (0,)),
    ((64, 300, 100), (0, 1)),
    ((3, 500, 70), (1,)),
    ((0, 40), (0,)),
    ((300, 0, 40), (0, 1)),
]
VM = pytest.mark.parametrize("vm", [False, True], ids=["eager", "vm"])


def random_array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run_on_cuda(function: Any, vm: bool, *arrays: Any) -> Any:
    operands = [meta.array(a, device="cuda") for a in arrays]
    if not vm:
        return function(*operands)
    return meta.vm.compile(meta.trace(function), device="cuda")(*operands)


@VM
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_match_float64(shape: tuple[int, ...], axes: tuple[int, ...], vm: bool) -> None:
    x = random_array(*shape)
    with meta.with_dialect("tvm"):
        result = run_on_cuda(lambda x: meta.sum(x, axes) * 2.0, vm, x).numpy()
    expected = x.sum(axes, dtype=np.float64) * 2
    scale = np.sqrt(max(x.size // max(expected.size, 1), 1))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * scale)


@VM
@pytest.mark.parametrize("shape", [(1000, 100), (4096, 7)])
def test_other_reductions_match_float64(shape: tuple[int, ...], vm: bool) -> None:
    x = random_array(*shape)
    wide = x.astype(np.float64)
    with meta.with_dialect("tvm"):
        np.testing.assert_array_equal(run_on_cuda(lambda x: meta.max(x, 0), vm, x).numpy(), x.max(0))
        np.testing.assert_array_equal(run_on_cuda(lambda x: meta.min(x, 0), vm, x).numpy(), x.min(0))
        np.testing.assert_array_equal(run_on_cuda(lambda x: meta.argmax(x, 0), vm, x).numpy(), x.argmax(0))
        np.testing.assert_allclose(run_on_cuda(lambda x: meta.mean(x, 0), vm, x).numpy(), wide.mean(0), atol=1e-5)
        np.testing.assert_allclose(run_on_cuda(lambda x: meta.softmax(x, 0), vm, x).numpy().sum(0), 1, rtol=1e-5)
        prod = run_on_cuda(lambda x: meta.prod(x, 0), vm, 1 + x / 1000).numpy()
    np.testing.assert_allclose(prod, (1 + x / 1000).astype(np.float64).prod(0), rtol=1e-3)


@VM
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_half_precision_in_float32(dtype: str, vm: bool) -> None:
    x = np.ones((5000, 64), np.float32)
    with meta.with_dialect("tvm"):
        result = run_on_cuda(lambda x: meta.sum(meta.cast(x, dtype), 0), vm, x)
    np.testing.assert_allclose(result.numpy().astype(np.float64), 5000, rtol=4e-3)


@VM
def test_layer_norm_gradients_match_float64(vm: bool) -> None:
    x, dy = random_array(4000, 96), random_array(4000, 96, seed=1)
    with meta.with_dialect("tvm"):
        dscale, dbias = run_on_cuda(lambda x, dy: meta.layer_norm_dwb(x, dy), vm, x, dy)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(dscale.numpy(), (normal * dy).sum(0), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(dbias.numpy(), dy.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-3)
