"""Kernels of Relax programs, planned for CUDA without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.frontend.relax import from_relax
from tests.python.backend.tvm.test_cuda_programs import kernel_calls, plan, run_serially
from tests.python.frontend.relax.test_from_relax import PROGRAM, expected, parsed


@pytest.mark.parametrize("shapes", [{"x": (5, 3)}, {}], ids=["static", "symbolic"])
def test_kernels_are_scheduled_for_cuda(shapes: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(from_relax(parsed(PROGRAM), shapes=shapes), monkeypatch)
    names = [name.rpartition("_")[0] for name in kernel_calls(planned)]
    assert names == ["fused_multiply", "relax__shifted", "relax__totals"]
    kernels = [f for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc)]
    assert all("threadIdx.x" in str(kernel) for kernel in kernels)
    x, w = np.random.RandomState(0).randn(5, 3).astype("float32"), np.array([1, 2, 3], "float32")
    for ours, theirs in zip(run_serially(planned, [meta.array(x), meta.array(w)]), expected(x, w), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5)
