"""Kernels of Relax programs on a GPU. The module is skipped without one."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.frontend.relax import from_relax
from meta.interpreter.run import run
from meta.testing import get_testable_devices
from tests.python.frontend.relax.test_from_relax import PROGRAM, expected, parsed

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


@pytest.mark.parametrize("shapes", [{"x": (5, 3)}, {}], ids=["static", "symbolic"])
def test_kernels_run_on_a_gpu(shapes: dict[str, tuple[int, ...]]) -> None:
    program = from_relax(parsed(PROGRAM), shapes=shapes, device="cuda")
    compiled = meta.vm.compile(program, device="cuda")
    w = np.array([1, 2, 3], "float32")
    for count in (5,) if shapes else (2, 5, 1000):
        x = np.random.RandomState(count).randn(count, 3).astype("float32")
        arrays = meta.array(x, device="cuda"), meta.array(w, device="cuda")
        for results in (compiled(*arrays), run(program, *arrays)):
            for ours, theirs in zip(results, expected(x, w), strict=True):
                assert ours.device.kind == "cuda"
                np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)
