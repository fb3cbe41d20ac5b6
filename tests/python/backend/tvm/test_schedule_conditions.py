"""Every size condition of the schedules has benchmark calls that reach it: disabling it changes their functions."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.schedules import Condition, cpu_conditions, gpu_conditions, scheduled_function
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets

LIMITS = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}


def check_calls_reach(condition: Condition, device: str) -> None:
    for sample in condition.calls:
        enabled, _ = scheduled_function(sample, device, condition.symbolic)
        with condition.disable():
            disabled, _ = scheduled_function(sample, device, condition.symbolic)
        assert not tvm.structural_equal(enabled, disabled), sample


@pytest.mark.parametrize("condition", [c for c in cpu_conditions() if c.attribute], ids=lambda c: c.name)
def test_calls_on_the_cpu(condition: Condition) -> None:
    check_calls_reach(condition, "cpu")


@pytest.mark.parametrize("condition", list(gpu_conditions()), ids=lambda c: c.name)
def test_calls_on_a_gpu(condition: Condition, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    monkeypatch.setattr(targets, "target", lambda kind: gpu)
    check_calls_reach(condition, "cuda")
