"""The CUDA stream that this thread's kernels run on, and waiting for a device."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from meta.backend.cuda import driver
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import CUDA, tvm_device
from meta.device import Device, device


def current_stream(on: Device) -> int:
    """The stream (a CUDA handle; 0 is the default one) that this thread's kernels on a device run on."""
    return tvm.current_stream(CUDA, on.index) or 0


def stream_getter(on: Device) -> Callable[[], int]:
    """`current_stream` of a device as a function of no arguments."""
    return partial(current_stream, on)


def set_stream(on: Device, stream: int) -> int:
    """Have this thread's kernels run on a stream; returns the one they ran on."""
    tvm_device(on)
    return tvm.set_stream(CUDA, on.index, stream) or 0


@contextmanager
def use_stream(handle: int, on: Device | str = "cuda") -> Generator[None, None, None]:
    """Have kernels of this thread run on a CUDA stream, such as `torch.cuda.Stream().cuda_stream`.

    An array belongs to the stream that it was made on; to use it on another one, have that one wait first."""
    target = device(on)
    previous = set_stream(target, handle)
    try:
        yield
    finally:
        set_stream(target, previous)


def synchronize(on: Device | str) -> None:
    """Wait until all work given to a device is done; nothing to do for the CPU."""
    target = device(on)
    if target.kind == "cpu":
        return
    tvm_device(target)
    driver.enter(target)
    driver.synchronize_all()
