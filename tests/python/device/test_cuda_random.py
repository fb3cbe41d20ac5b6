"""Numbers that take a varying number of random words: on a GPU as on the CPU. The module is skipped without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.dtype import FLOATS
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["poisson", "standard_gamma"])
def test_numbers_equal_the_numbers_on_the_cpu(name: str, dtype: str) -> None:
    parameters = np.repeat([0.0, 0.02, 0.4, 1.0, 3.5, 9.99, 10.0, 17.0, 60.0, 1e3, 3e4, np.inf, np.nan, -1.0], 999)
    operands = [meta.array(np.array([5, 3])), meta.array(parameters, dtype=dtype)]
    expected = getattr(meta, name)(*operands).numpy().astype(np.float64)
    traced = meta.trace(lambda key, x: getattr(meta, name)(key, x))
    arrays = [x.to("cuda") for x in operands]
    for numbers in (getattr(meta, name)(*arrays), meta.vm.compile(traced, device="cuda")(*arrays)):
        # Logarithms may differ in their last bit.
        rtol = {"float64": 1e-12, "float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
        np.testing.assert_allclose(numbers.numpy().astype(np.float64), expected, rtol=rtol)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1024, 4096), (1023, 4097), (64, 4096)], ids=str)
def test_dropout_keeps_the_elements_that_the_cpu_keeps(shape: tuple[int, int], dtype: str) -> None:
    """Shapes whose threads have vectors of elements, some elements, and one."""
    operands = [meta.array(np.random.default_rng(0).standard_normal(shape), dtype=dtype), meta.array(np.array([5, 3]))]
    traced = meta.trace(lambda x, key: meta.dropout(x, key, 0.3))
    expected = [x.numpy() for x in meta.dropout(*operands, 0.3)]
    arrays = [x.to("cuda") for x in operands]
    for results in (meta.dropout(*arrays, 0.3), meta.vm.compile(traced, device="cuda")(*arrays)):
        for result, of_cpu in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result.numpy(), of_cpu)


def test_gradients_of_gamma_numbers_equal_the_gradients_on_the_cpu() -> None:
    rng = np.random.default_rng(0)
    alpha = np.exp(rng.uniform(-5, 12, 20_000))
    operands = [meta.array(alpha), meta.array(alpha * rng.uniform(0.2, 2, alpha.size))]
    expected = meta.standard_gamma_grad(*operands).numpy()
    result = meta.standard_gamma_grad(*(x.to("cuda") for x in operands))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-9)
