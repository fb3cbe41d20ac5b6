"""Loops of programs on a GPU: values and gradients as on the CPU. The module is skipped without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def _run(w: Any, xs: Any) -> Any:
    w.requires_grad = xs.requires_grad = True
    zeros = meta.zeros((2, 3), device=w.device)
    last, sums = meta.scan(lambda c, x: ((y := meta.tanh(c @ w + x)), y.sum()), zeros, xs)
    halved = meta.while_loop(lambda y: y.sum() > 0.5, lambda y: y * 0.5, meta.exp(last.detach()))
    loss = (last * last).sum() + sums.sum()
    return loss, halved, *meta.autograd.grad(loss, (w, xs))


def test_loops_on_a_gpu_agree_with_the_cpu() -> None:
    rng = np.random.default_rng(0)
    host = [rng.standard_normal((3, 3)).astype(np.float32), rng.standard_normal((5, 2, 3)).astype(np.float32)]
    expected = [x.detach().numpy() for x in _run(*map(meta.array, host))]
    arrays = [meta.array(x, device="cuda") for x in host]
    executor = meta.vm.compile(meta.trace(_run), device="cuda")
    for result in (_run(*arrays), executor(*arrays), executor(*arrays)):
        for a, b in zip(result, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-4, atol=1e-5)
