"""Every size condition of the schedules has benchmark calls that reach it: disabling it changes their functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.schedules import Condition, cpu_conditions, gpu_conditions, scheduled_function
from meta.backend.memory import allocation
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.testing.arrays import to_torch
from meta.testing.generic import make_call
from tests.python.backend.tvm.processors import AVX512, schedule_for

LIMITS = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}


def check_calls_reach(condition: Condition, device: str) -> None:
    for sample in condition.calls:
        enabled, _ = scheduled_function(sample, device, condition.symbolic)
        with condition.disable():
            disabled, _ = scheduled_function(sample, device, condition.symbolic)
        assert not tvm.structural_equal(enabled, disabled), sample


@pytest.mark.parametrize("condition", [c for c in cpu_conditions() if c.attribute], ids=lambda c: c.name)
def test_calls_on_the_cpu(condition: Condition, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are those of vectors of 512 bits, on which the conditions were measured."""
    schedule_for(AVX512, monkeypatch)
    check_calls_reach(condition, "cpu")


@pytest.mark.parametrize(
    "condition", [c for c in cpu_conditions() if c.name.startswith("rows: ") and c.attribute], ids=lambda c: c.name
)
def test_results_of_reductions_on_the_cpu(condition: Condition) -> None:
    """The kernels of static sizes, which eager calls do not reach, agree with torch."""
    for sample in condition.calls:
        function, (out,) = scheduled_function(sample, "cpu", symbolic=False)
        result = allocation.empty(out.shape, out.dtype, out.device)
        call = make_call(sample)
        run = library.compile_functions({"kernel": function}, targets.target("cpu"))["kernel"]
        run(*(a._data for a in call.to_meta("cpu").arrays()), result)
        expected = call.map(to_torch).apply(sample.ref)  # pyright: ignore[reportArgumentType]
        actual = torch.from_numpy(np.from_dlpack(result).copy())
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("condition", list(gpu_conditions()), ids=lambda c: c.name)
def test_calls_on_a_gpu(condition: Condition, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    monkeypatch.setattr(targets, "target", lambda kind: gpu)
    check_calls_reach(condition, "cuda")
