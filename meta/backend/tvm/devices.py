"""Devices and dtypes of meta as TVM's objects."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import runtime
from meta.device import CPU, Device, device
from meta.errors import DeviceError

WARP: Final = 32
"""Threads of a CUDA device that run together."""
MAX_THREADS: Final = 1024
"""Threads of a block on a CUDA device, at most."""
CUDA: Final = 2
"""DLPack's number of the device kind."""


@cache
def tvm_device(on: Device) -> Any:
    """TVM's object of a device. Raises DeviceError if this machine lacks the device."""
    handle = tvm.device(on.kind, on.index)
    if on is not CPU and not exists(on):
        # By its name: that module is about what TVM's runtime lacks, and imports this one.
        reason = import_module("meta.backend.cuda.driver").probe() or "the machine has fewer devices"
        raise DeviceError("device", f"there is no device {on} here: {reason}", '"cpu", which every machine has',
                          'write device="cpu"')  # fmt: skip
    return handle


def exists(on: Device) -> bool:
    """Whether this machine has the device."""
    if on.kind == "cpu":
        return on.index == 0
    return runtime.load_cuda() and bool(tvm.device_attribute(CUDA, on.index, 0))


def is_available(on: Device | str = "cuda") -> bool:
    """Whether this machine has the device. `python -m meta env` says why it lacks one."""
    return exists(device(on))


@cache
def tvm_dtype(dtype: str) -> Any:
    """TVM's object of a dtype."""
    return tvm.dtype(dtype)


def require(on: Device) -> None:
    """Raise DeviceError if this machine lacks the device."""
    if on is not CPU:
        tvm_device(on)
