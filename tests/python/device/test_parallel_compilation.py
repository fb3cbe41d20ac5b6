"""Kernels for a GPU, compiled by several processes: the results of one process, and no memory of the GPU in the others.
The module is skipped without a GPU."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import optim
from meta._generated import limits
from meta.backend.tvm.parallel import processes
from meta.testing import get_testable_devices
from meta.vm.build import executables, generate
from tests.python.optim.training import Network, batches

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


GPU = re.compile(r"/dev/nvidia\d")


def open_files(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    return [str(path.readlink()) for path in folder.iterdir() if path.is_symlink()]


def train(folder: Path, jobs: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The losses of three steps and the weights after them, in a program compiled by so many processes."""
    monkeypatch.setenv("META_COMPILE_JOBS", jobs)
    monkeypatch.setenv("META_CACHE_DIR", str(folder / jobs))
    monkeypatch.setattr(executables, "_loaded", OrderedDict())
    meta.random.seed(0)
    model = Network("float32").to("cuda")
    step = meta.vm.compile(optim.TrainStep(model, optim.SGD(model, 0.1, 0.9), meta.cross_entropy), device="cuda")
    data = [[meta.array(part, device="cuda") for part in batch] for batch in batches(3, "float32")]
    losses = [step(*batch).detach().numpy() for batch in data]
    return [*losses, *(p.detach().numpy() for p in model.parameters())]


def test_results_do_not_depend_on_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_here(*_: Any) -> Any:
        raise AssertionError("a process failed")

    monkeypatch.setattr(limits, "PROCESSES_FROM", 2)
    monkeypatch.setattr(limits, "KERNELS_PER_PROCESS", 2)
    monkeypatch.setattr(limits, "KERNELS_FOR_A_WORKER", 1)
    monkeypatch.setattr(generate, "compile_functions", compile_here)
    try:
        several = train(tmp_path, "2", monkeypatch)
        assert processes.running() == 2
        assert not [path for worker in processes._workers for path in open_files(worker.pid) if GPU.match(path)]
    finally:
        processes.stop()
    for ours, theirs in zip(several, train(tmp_path, "1", monkeypatch), strict=True):
        np.testing.assert_array_equal(ours, theirs)
