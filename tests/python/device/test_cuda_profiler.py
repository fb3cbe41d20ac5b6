"""Profiles on a GPU. The module is skipped without one."""

from __future__ import annotations

import pytest

import meta
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def test_eager_times_are_device_times() -> None:
    x = meta.ones((4096, 4096), device="cuda")
    meta.matmul(x, x)
    meta.synchronize("cuda")
    with meta.profiler.profile() as p:
        meta.matmul(x, x)
    (event,) = p.events
    assert event.duration > 50_000  # 137 GFLOP take more than 50 us on any GPU; queueing them takes less
    assert event.living == 4096 * 4096 * 4


def test_kernels_of_a_program_are_reported_and_the_graph_goes_on() -> None:
    meta.random.seed(0)
    model = meta.nn.Sequential(meta.nn.Linear(64, 64), meta.nn.ReLU(), meta.nn.Linear(64, 8)).to("cuda")
    step = meta.vm.compile(meta.optim.sgd.with_sgd(0.1)(model, loss=meta.cross_entropy), device="cuda")
    x, target = meta.ones((16, 64), device="cuda"), meta.array([0] * 16, device="cuda")
    losses = [step(x, target).item() for _ in range(4)]
    with meta.profiler.profile() as p:
        losses.append(step(x, target).item())
    losses.append(step(x, target).item())
    assert losses == sorted(losses, reverse=True)
    kernels = [e for e in p.events if e.kind == "kernel"]
    assert kernels
    assert all(e.lines for e in kernels)
