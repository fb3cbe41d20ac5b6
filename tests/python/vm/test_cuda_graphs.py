"""When calls are recorded as CUDA graphs, and which memory the graphs read: with a driver that records Python calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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
from meta.vm.plan.allocations import Destination, Destinations

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


def program(driver: Driver, stable: tuple[int, ...], written: tuple[int, ...] = ()) -> graphs.GraphCall:
    """x * w + b: x moves; w and b do not, and those in `stable` are known to stay. Each call adds 1 to a written b."""

    def main(x: Any, w: Any, b: Any, out: Any) -> Any:
        places = [_memory_of(each) for each in (x, w, b, out)]

        def work() -> None:
            places[3][:] = places[0] * places[1] + places[2]
            places[2] += bool(written)

        if driver.capturing is None:
            work()
        else:
            driver.capturing.append(work)
        return out

    kind = tensor_type((SIZE,), "float32", CPU)
    memory = Destinations((4 * SIZE,), (Destination(0, 0, (SIZE,), "float32"),), kernels=1)
    return graphs.GraphCall(main, [kind] * 3, [0], memory, CPU, [], stable, written)


def aligned(value: float) -> torch.Tensor:
    """A tensor at a multiple of 64 bytes, as all memory of GPUs that torch allocates."""
    memory = torch.empty(2 * SIZE)
    start = -memory.data_ptr() % 64 // 4
    return memory[start : start + SIZE].fill_(value)


def check(call: graphs.GraphCall, w: torch.Tensor, b: torch.Tensor, value: float) -> None:
    x = torch.full((SIZE,), value)
    np.testing.assert_array_equal(np.from_dlpack(call.main(x, w, b)), (x * w + b).numpy())


def repeat(call: graphs.GraphCall, make: Callable[[], torch.Tensor], b: torch.Tensor, times: int) -> list[Any]:
    """Calls with new values of x and a w from `make`; returns the owners of their memory."""
    owners = []
    for i in range(times):
        owners.append(make())
        check(call, owners[-1], b, float(i))
    return owners


def test_parameters_are_read_where_they_are(driver: Driver) -> None:
    call, w, b = program(driver, stable=(1, 2)), aligned(2.0), aligned(3.0)
    repeat(call, lambda: w, b, 3)
    assert (call.recorded, driver.launches) == (1, 1)
    before = driver.copies
    w.mul_(2)  # an optimizer's step
    repeat(call, w.detach, b, 3)  # another object with the same memory
    assert (call.recorded, driver.launches) == (1, 4)
    assert driver.copies - before == 3 * 2  # x and the result of each call


def test_a_parameter_that_moves_is_recorded_anew_and_then_copied(driver: Driver) -> None:
    call, w, b = program(driver, stable=(1, 2)), aligned(2.0), aligned(3.0)
    repeat(call, lambda: w, b, 4)
    moved = aligned(5.0)
    repeat(call, lambda: moved, b, 2)
    assert call.recorded == 2
    assert driver.freed == [1]
    assert set(call.copied) == {0}
    held = repeat(call, lambda: aligned(7.0), b, 4)
    assert len({x.data_ptr() for x in held}) == 4
    assert call.recorded == 3
    assert set(call.copied) == {0, 1}
    assert not call.refusal


def test_a_misaligned_parameter_is_copied(driver: Driver) -> None:
    call, w, b = (
        program(driver, stable=(1, 2)),
        torch.cat([aligned(2.0), torch.zeros(SIZE)])[1 : SIZE + 1],
        aligned(3.0),
    )
    w = w if w.data_ptr() % 64 else torch.cat([aligned(2.0), torch.zeros(SIZE)])[2 : SIZE + 2]
    repeat(call, lambda: w, b, 4)
    assert call.recorded == 1
    assert set(call.copied) == {0, 1}


def test_other_arrays_that_the_program_keeps_are_recorded_anew(driver: Driver) -> None:
    b = tvm.from_dlpack(aligned(3.0))
    call, w = program(driver, stable=(1,)), aligned(2.0)
    for i in range(12):
        b = tvm.from_dlpack(aligned(float(i))) if i > 3 else b
        call.main(torch.ones(SIZE), w, b)
    assert call.recorded == graphs.MAX_RECORDINGS
    assert "other arrays" in call.refusal
    expected = 2.0 + 42.0
    assert np.from_dlpack(call.main(torch.ones(SIZE), w, tvm.from_dlpack(aligned(42.0))))[0] == expected


def test_parameters_that_the_program_writes_are_never_copied(driver: Driver) -> None:
    call, w = program(driver, stable=(1, 2), written=(2,)), aligned(2.0)
    owners = []
    for _ in range(3):
        owners.append(aligned(3.0))
        for i in range(4):
            expected = 2.0 + 3.0 + i
            assert np.from_dlpack(call.main(torch.ones(SIZE), w, owners[-1]))[0] == expected
        assert owners[-1][0] == 7.0
    assert call.recorded == 3
    assert set(call.copied) == {0}
