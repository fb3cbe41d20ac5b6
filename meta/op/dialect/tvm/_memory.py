"""Allocation, views and copies of tensors through TVM's runtime; the only code that turns our devices into TVM's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from meta.device import CPU, Device
from meta.errors import DeviceError, message
from meta.op.dialect.tvm import _adapter as tvm


@cache
def tvm_device(on: Device) -> Any:
    """TVM's object for a device; raises DeviceError when this machine does not have it."""
    found = tvm.device(on.kind, on.index)
    if on is not CPU and not tvm.tvm.runtime.device(on.kind, on.index).exist:
        raise DeviceError(message("device", f"there is no device {on} here", 'on every machine: "cpu"'))
    return found


@cache
def tvm_dtype(dtype: str) -> Any:
    return tvm.dtype(dtype)


def tvm_shape(shape: tuple[int, ...]) -> Any:
    return tvm.Shape(shape)


def empty(shape: tuple[int, ...], dtype: str, on: Device = CPU) -> Any:
    """An uninitialised compact tensor. Raises DeviceError when the device is missing or out of memory."""
    try:
        return tvm.alloc_tensor(tvm.Shape(shape), tvm_dtype(dtype), tvm_device(on), None)
    except (RuntimeError, MemoryError) as error:
        raise DeviceError(
            message("memory", f"cannot allocate {shape} {dtype} on {on}: {str(error).splitlines()[-1]}",
                    "as much as the device has free", "free arrays or use smaller ones")
        ) from None  # fmt: skip


def view(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Another shape or same-width dtype over the same memory."""
    return tvm.create_view(data, tvm.Shape(shape), tvm_dtype(dtype), 0)


def viewer(shape: tuple[int, ...], dtype: str) -> Callable[[Any], Any]:
    """`view` with everything but the tensor known beforehand."""
    create, target, kind = tvm.create_view, tvm.Shape(shape), tvm_dtype(dtype)
    return lambda data: create(data, target, kind, 0)


def copy_into(source: Any, target: Any) -> None:
    """Copy the elements; the tensors may be on different devices."""
    tvm.copy_from_to(source, target)


def copy_to(source: Any, dtype: str, on: Device) -> Any:
    """A copy on `on`."""
    out = empty(tuple(source.shape), dtype, on)
    copy_into(source, out)
    return out


def allocator(shape: tuple[int, ...], dtype: str, on: Device) -> Callable[[], Any]:
    """`empty` with everything but the allocation done beforehand."""
    return partial(tvm.alloc_tensor, tvm.Shape(shape), tvm_dtype(dtype), tvm_device(on), None)


def synchronize(on: Device) -> None:
    """Wait until the work given to the device is done."""
    if on.kind != "cpu":
        tvm.stream_sync(tvm_device(on), 0)
