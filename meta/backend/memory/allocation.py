"""Allocation, views and copies of tensors through TVM's runtime; the only code that turns our devices into TVM's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import runtime
from meta.device import CPU, Device
from meta.dtype import itemsize
from meta.errors import DeviceError

if TYPE_CHECKING:
    from meta.backend.cuda.pool import DevicePools, MemoryStats

_CUDA = 2  # DLPack's number for the kind


@cache
def tvm_device(on: Device) -> Any:
    """TVM's object for a device; raises DeviceError when this machine does not have it."""
    found = tvm.device(on.kind, on.index)
    if on is not CPU and not _exists(on):
        raise DeviceError("device", f"there is no device {on} here", '"cpu", which every machine has')
    return found


def _exists(on: Device) -> bool:
    if on.kind == "cpu":
        return on.index == 0
    return runtime.load_cuda() and bool(tvm.device_attribute(_CUDA, on.index, 0))


@cache
def tvm_dtype(dtype: str) -> Any:
    return tvm.dtype(dtype)


def empty(shape: tuple[int, ...], dtype: str, on: Device = CPU) -> Any:
    """An uninitialised compact tensor; on CUDA from the pool of the current stream. Raises DeviceError when the device
    is missing or out of memory."""
    if on.kind != "cpu":
        return allocator(shape, dtype, on)()
    try:
        return tvm.alloc_tensor(tvm.Shape(shape), tvm_dtype(dtype), tvm_device(on), None)
    except (RuntimeError, MemoryError) as error:
        raise DeviceError(
            "memory", f"cannot allocate {shape} {dtype} on {on}: {str(error).splitlines()[-1]}",
                    "as much as the device has free", "free arrays or use smaller ones"
        ) from None  # fmt: skip


def view(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Another shape or same-width dtype over the same memory."""
    return tvm.create_view(data, tvm.Shape(shape), tvm_dtype(dtype), 0)


def viewer(shape: tuple[int, ...], dtype: str) -> Callable[[Any], Any]:
    """`view` with everything but the tensor known beforehand."""
    create, target, kind = tvm.create_view, tvm.Shape(shape), tvm_dtype(dtype)
    return lambda data: create(data, target, kind, 0)


def copy_into(source: Any, target: Any) -> None:
    """Copy the elements; the tensors may be on different devices.

    Copies between devices, and on one, are queued on the current stream; the data of a copy from a device to the CPU is
    there when this returns."""
    places = [int(t.device.dlpack_device_type()) for t in (source, target)]
    if _CUDA not in places:
        tvm.copy_from_to(source, target)
        return
    from meta.backend.cuda import driver

    count = prod(target.shape) * itemsize(str(target.dtype))
    if count:
        on = _device_of(target if places[1] == _CUDA else source)
        driver.enter(on)
        stream = current_stream(on)
        driver.copy(target.data_ptr(), source.data_ptr(), count, stream)
        if places[1] != _CUDA:
            driver.synchronize(stream)


def _device_of(data: Any) -> Device:
    from meta.device import device

    return device(f"cuda:{data.device.index}")


def copy_to(source: Any, dtype: str, on: Device) -> Any:
    """A copy on `on`."""
    out = empty(tuple(source.shape), dtype, on)
    copy_into(source, out)
    return out


def allocator(shape: tuple[int, ...], dtype: str, on: Device) -> Callable[[], Any]:
    """`empty` with everything but the allocation done beforehand."""
    where = tvm_device(on)
    if on.kind == "cpu":
        _require_room(shape, dtype)
        return partial(tvm.alloc_tensor, tvm.Shape(shape), tvm_dtype(dtype), where, None)
    from meta.backend.cuda import pool

    stream = partial(tvm.current_stream, _CUDA, on.index)
    return pool.allocator(tvm.Shape(shape), tvm_dtype(dtype), prod(shape) * itemsize(dtype), on, stream)


def _require_room(shape: tuple[int, ...], dtype: str) -> None:
    """Raise DeviceError for a tensor beyond all of this machine's memory, which the allocator would only abort on."""
    count = prod(shape) * itemsize(dtype)
    memory = _host_memory()
    if count > 2 * memory:
        wrong = f"cannot allocate {shape} {dtype} on cpu: {count:,} bytes"
        raise DeviceError("memory", wrong, f"at most {memory:,}", "use smaller arrays")


@cache
def _host_memory() -> int:
    """Bytes of memory; a bound that nothing reaches where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def current_stream(on: Device) -> int:
    """The stream (a CUDA handle; 0 is the default one) that this thread's kernels on a device run on."""
    return tvm.current_stream(_CUDA, on.index) or 0


def set_stream(on: Device, stream: int) -> int:
    """Have this thread's kernels run on a stream; returns the one they ran on."""
    tvm_device(on)
    return tvm.set_stream(_CUDA, on.index, stream) or 0


def synchronize(on: Device) -> None:
    """Wait until the work given to the device is done."""
    if on.kind == "cpu":
        return
    from meta.backend.cuda import driver

    tvm_device(on)
    driver.enter(on)
    driver.synchronize_all()


def pools(on: Device) -> DevicePools:
    """The allocator of a CUDA device; raises DeviceError when it is not there, or is the CPU."""
    if on.kind == "cpu":
        raise DeviceError("memory", "memory of the CPU is not pooled", 'device="cuda"')
    from meta.backend.cuda import pool

    tvm_device(on)
    return pool.pools(on)


def memory_stats(on: Device) -> MemoryStats:
    """What the allocator of a CUDA device has. Raises DeviceError like `pools`."""
    return pools(on).stats()
