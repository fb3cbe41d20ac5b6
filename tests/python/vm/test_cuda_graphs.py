"""When calls are recorded as CUDA graphs, and which memory the graphs read: with a driver that records Python calls."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from meta.backend.tvm import adapter as tvm
from meta.device import CPU
from meta.ir.type import tensor_type
from meta.vm import cuda_graph as graphs
from meta.vm.plan.kernels import Destination, Destinations

SIZE = 16
"""float32 elements of each tensor: 64 bytes, the alignment that kernels expect."""


class Driver(SimpleNamespace):
    """A driver whose graphs are the calls of `work` while it captures, by the addresses of their arguments."""

    def __init__(self) -> None:
        super().__init__(capturing=None, graphs=[], launches=0, freed=[], copies=0)

    def begin_capture(self, stream: int) -> None:
        self.capturing = []

    def end_capture(self, stream: int) -> int:
        self.graphs.append(self.capturing)
        self.capturing = None
        return len(self.graphs)

    def launch_graph(self, graph: int, stream: int) -> None:
        self.launches += 1
        for work in self.graphs[graph - 1]:
            work()

    def free_graph(self, graph: int) -> None:
        self.freed.append(graph)

    def copy(self, target: int, source: int, byte_count: int, stream: int) -> None:
        self.copies += 1
        ctypes.memmove(target, source, byte_count)

    def set_device(self, device: Any) -> None: ...
    def make_stream_wait(self, stream: int, other: int) -> None: ...
    def synchronize(self, stream: int) -> None: ...
    def create_stream(self) -> int:
        return 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    @contextmanager
    def private(pool: Any) -> Any:
        yield

    pools = SimpleNamespace(create_private_pool=lambda stream: None, use_private_pool=private)
    fake = Driver()
    monkeypatch.setattr(graphs, "driver", fake)
    monkeypatch.setattr(graphs, "memory_pool", SimpleNamespace(require_pools=lambda device: pools))
    still = SimpleNamespace(current_stream=lambda device: 0, set_stream=lambda device, stream: 0)
    monkeypatch.setattr(graphs, "streams", still)
    return fake


def _memory_of(x: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor, which may be freed."""
    return np.ctypeslib.as_array((ctypes.c_float * SIZE).from_address(x.data_ptr()))


def program(driver: Driver) -> graphs.GraphCall:
    """x * w + b: x moves; w and b are the program's own. Each call adds 1 to b."""

    def main(x: Any, w: Any, b: Any, out: Any) -> Any:
        places = [_memory_of(each) for each in (x, w, b, out)]

        def work() -> None:
            places[3][:] = places[0] * places[1] + places[2]
            places[2] += 1

        if driver.capturing is None:
            work()
        else:
            driver.capturing.append(work)
        return out

    kind = tensor_type((SIZE,), "float32", CPU)
    memory = Destinations((4 * SIZE,), (Destination(0, 0, (SIZE,), "float32"),), kernels=1)
    return graphs.GraphCall(main, [kind] * 3, [0], memory, graphs.GraphRecorder(CPU, []))


def aligned(value: float) -> Any:
    """A tensor at a multiple of 64 bytes, as all memory of GPUs."""
    memory = torch.empty(2 * SIZE)
    start = -memory.data_ptr() % 64 // 4
    return tvm.from_dlpack(memory[start : start + SIZE].fill_(value))


def call_with(call: graphs.GraphCall, x: float, w: Any, b: Any) -> float:
    return float(np.from_dlpack(call.main(torch.full((SIZE,), x), w, b))[0])


def test_what_stays_is_read_where_it_is(driver: Driver) -> None:
    call, w, b = program(driver), aligned(2.0), aligned(3.0)
    assert [call_with(call, float(i), w, b) for i in range(6)] == [2.0 * i + 3.0 + i for i in range(6)]
    assert (call.recorder.recorded, driver.launches) == (1, 4)
    assert driver.copies == 6 * 2  # x and the result of each call


def test_other_arrays_that_the_program_keeps_are_recorded_anew(driver: Driver) -> None:
    call, w, b = program(driver), aligned(2.0), aligned(3.0)
    for i in range(2 * graphs.MAX_RECORDINGS):
        b = aligned(float(i)) if i > 3 else b
        call_with(call, 1.0, w, b)
    assert call.recorder.recorded == graphs.MAX_RECORDINGS
    assert driver.freed == list(range(1, graphs.MAX_RECORDINGS))
    assert "other arrays" in call.recorder.refusal
    assert call_with(call, 1.0, w, aligned(42.0)) == 2.0 + 42.0


def test_recordings_are_freed_and_made_again(driver: Driver) -> None:
    call, w, b = program(driver), aligned(2.0), aligned(3.0)
    for _ in range(4):
        call_with(call, 1.0, w, b)
    graphs.forget_recordings()
    assert driver.freed == [1]
    assert call_with(call, 1.0, w, b) == 2.0 + 7.0
    assert call.recorder.recorded == 2
