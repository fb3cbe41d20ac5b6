"""Allocation, views and copies of tensors through TVM's runtime.

An allocation is compact and row-major."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

from meta.backend.cuda import driver, pool
from meta.backend.cuda.streams import current_stream
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import CUDA, tvm_device, tvm_dtype
from meta.device import CPU, Device, device
from meta.dtype import itemsize
from meta.errors import DeviceError
from meta.ir.type import TensorType


def empty(shape: tuple[int, ...], dtype: str, on: Device = CPU) -> Any:
    """An uninitialised compact tensor; on CUDA from the pool of the current stream. Raises DeviceError when the device
    is missing or out of memory."""
    if on.kind != "cpu":
        return _allocator(shape, dtype, on)()
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


def viewer(t: TensorType) -> Callable[[Any], Any]:
    """A function that gives the memory of a tensor the shape and dtype of `t`, as fast as possible."""
    create, shape, dtype = tvm.create_view, tvm.Shape(t.shape), tvm_dtype(t.dtype)
    return lambda data: create(data, shape, dtype, 0)


def copy_into(source: Any, target: Any) -> None:
    """Copy the elements; the tensors may be on different devices.

    Copies between devices, and on one, are queued on the current stream; the data of a copy from a device to the CPU is
    there when this returns."""
    kinds = [int(t.device.dlpack_device_type()) for t in (source, target)]
    if CUDA not in kinds:
        tvm.copy_from_to(source, target)
        return
    count = prod(target.shape) * itemsize(str(target.dtype))
    if count:
        on = _device_of(target if kinds[1] == CUDA else source)
        driver.enter(on)
        stream = current_stream(on)
        driver.copy(target.data_ptr(), source.data_ptr(), count, stream)
        if kinds[1] != CUDA:
            driver.synchronize(stream)


def _device_of(data: Any) -> Device:
    return device(f"cuda:{data.device.index}")


def copy_to(source: Any, dtype: str, on: Device) -> Any:
    """A copy on `on`."""
    out = empty(tuple(source.shape), dtype, on)
    copy_into(source, out)
    return out


def allocator(t: TensorType) -> Callable[[], Any]:
    """A function of no arguments that allocates an uninitialised tensor of type `t`, as fast as possible."""
    return _allocator(t.shape, t.dtype, t.device)  # type: ignore[arg-type]


def _allocator(shape: tuple[int, ...], dtype: str, on: Device) -> Callable[[], Any]:
    handle = tvm_device(on)
    if on.kind == "cpu":
        _require_room(shape, dtype)
        return partial(tvm.alloc_tensor, tvm.Shape(shape), tvm_dtype(dtype), handle, None)
    stream = partial(tvm.current_stream, CUDA, on.index)
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
