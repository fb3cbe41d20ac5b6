"""The current CUDA stream of a thread, and synchronisation with a device."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from meta.backend.cuda import driver
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import CUDA, tvm_device
from meta.device import Device, device


def current_stream(on: Device) -> int:
    """The handle of the stream on which this thread's kernels run on a device; 0 is the default stream."""
    return tvm.current_stream(CUDA, on.index) or 0


def stream_getter(on: Device) -> Callable[[], int]:
    """`current_stream` of a device as a function of no arguments."""
    return partial(current_stream, on)


def set_stream(on: Device, stream: int) -> int:
    """Have this thread's kernels run on a stream; returns the previous stream."""
    tvm_device(on)
    return tvm.set_stream(CUDA, on.index, stream) or 0


@contextmanager
def use_stream(handle: int, on: Device | str = "cuda") -> Generator[None, None, None]:
    """Run this thread's kernels on a CUDA stream, such as `torch.cuda.Stream().cuda_stream`.

    An array belongs to the stream on which it was computed; another stream must wait before it uses the array."""
    target = device(on)
    previous = set_stream(target, handle)
    try:
        yield
    finally:
        set_stream(target, previous)


def synchronize(on: Device | str) -> None:
    """Wait until all work queued on a device is done; returns at once for the CPU."""
    target = device(on)
    if target.kind == "cpu":
        return
    tvm_device(target)
    driver.set_device(target)
    driver.synchronize_all()


def measure_milliseconds(run: Callable[[], None], stream: int, repeats: int, runs: int) -> float:
    """The median time on the device of `runs` consecutive runs, over `repeats` measurements."""
    timed = 0  # Flags of an event that records its time.
    events = driver.call("cuEventCreate", timed), driver.call("cuEventCreate", timed)
    try:
        return sorted(_measure_once(run, stream, events, runs) for _ in range(repeats))[repeats // 2]
    finally:
        for event in events:
            driver.call("cuEventDestroy", event)


def _measure_once(run: Callable[[], None], stream: int, events: tuple[Any, Any], runs: int) -> float:
    start, end = events
    driver.call("cuEventRecord", start, stream)
    for _ in range(runs):
        run()
    driver.call("cuEventRecord", end, stream)
    driver.call("cuEventSynchronize", end)
    return driver.call("cuEventElapsedTime", start, end)
