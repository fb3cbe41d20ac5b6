"""Allocation, views and copies of tensors through TVM's runtime. Allocated tensors are compact and row-major."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, Final

from meta.backend.cuda import driver, memory_pool
from meta.backend.cuda.streams import current_stream
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import bound
from meta.backend.tvm.devices import CUDA, tvm_device, tvm_dtype
from meta.device import CPU, Device, device
from meta.dim import Shape
from meta.dtype import itemsize
from meta.errors import DeviceError, MetaError
from meta.ir.type import TensorType, stored_shape

ALIGNMENT: Final = 64
"""Bytes of whose multiple the address of every tensor is; required of shared memory on devices other than the CPU."""


def empty(shape: Shape, dtype: str, on: Device = CPU) -> Any:
    """Allocate an uninitialised compact tensor; on CUDA from the pool of the current stream.

    Raises DeviceError if the device is missing or out of memory."""
    if on.kind != "cpu":
        return _allocator(shape, dtype, on)()
    try:
        return tvm.alloc_tensor(*_prepared(shape, dtype), tvm_device(on), None)
    except (RuntimeError, MemoryError):
        raise _out_of_memory(shape, dtype) from None


def _out_of_memory(shape: Shape, dtype: str) -> DeviceError:
    problem = f"cannot allocate {shape} {dtype} on cpu: {prod(shape) * itemsize(dtype):,} bytes"
    return DeviceError("memory", problem, "as much as the device has free", "free arrays or use smaller ones")


@contextmanager
def reporting(what: str, byte_count: Any = None) -> Generator[None]:
    """Raise DeviceError where the block runs out of memory. what: for which purpose ("a copy").
    byte_count: the bytes that it needs, if they are known."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        refuse(error, what, byte_count)
        raise


def refuse(error: BaseException, what: str, byte_count: Any = None) -> None:
    """Raise DeviceError in place of an error that says that memory ran out; other errors pass."""
    text = str(error).lower()
    if isinstance(error, MetaError) or not (
        isinstance(error, MemoryError) or "bad_alloc" in text or "out of memory" in text
    ):
        return
    detail = str(error) if "allocate" in text else ""  # NumPy says how much
    amount = f": {byte_count:,} bytes" if byte_count is not None else f": {detail}" if detail else ""
    raise DeviceError(
        "memory",
        f"memory ran out during {what}{amount}",
        "as much as the device has free",
        "free arrays or use smaller ones",
    ) from None


def view(data: Any, shape: Shape, dtype: str) -> Any:
    """The memory of `data` with another shape, or another dtype of the same width."""
    return tvm.create_view(data, *_prepared(shape, dtype), 0)


def bind_view(t: TensorType) -> Callable[[Any], Any]:
    """A function that views a tensor with the shape and dtype of `t`; the objects for TVM are prepared in advance."""
    create, (shape, dtype) = tvm.create_view, _prepared(t.shape, t.dtype)
    return lambda data: create(data, shape, dtype, 0)


def copy_into(source: Any, target: Any) -> None:
    """Copy the elements; the tensors may be on different devices.

    Copies that involve a GPU are queued on the current stream; a copy to the CPU is finished on return."""
    source_kind, target_kind = source.device.dlpack_device_type(), target.device.dlpack_device_type()
    if CUDA not in (source_kind, target_kind):
        tvm.copy_from_to(source, target)
        return
    byte_count = prod(target.shape) * itemsize(str(target.dtype))
    if byte_count:
        on = _device_of(target if target_kind == CUDA else source)
        driver.set_device(on)
        stream = current_stream(on)
        driver.copy(target.data_ptr(), source.data_ptr(), byte_count, stream)
        if target_kind != CUDA:
            driver.synchronize(stream)


def _device_of(data: Any) -> Device:
    return device(f"cuda:{data.device.index}")


def copy_to(source: Any, on: Device) -> Any:
    """Copy `source` to a new tensor on `on`."""
    out = empty(tuple(source.shape), str(source.dtype), on)
    copy_into(source, out)
    return out


def allocator(t: TensorType) -> Callable[[], Any]:
    """A function of no arguments that allocates an uninitialised tensor of type `t`."""
    return _allocator(t.shape, t.dtype, t.device)


def _allocator(shape: Shape, dtype: str, on: Device) -> Callable[[], Any]:
    handle = tvm_device(on)
    if on.kind == "cpu":
        _check_memory(shape, dtype)
        allocate = bound.fixed(tvm.alloc_tensor, (*_prepared(shape, dtype), handle, None))
        return allocate if prod(shape) * itemsize(dtype) < _SMALL_BYTES else _reporting(allocate, shape, dtype)
    stream = partial(tvm.current_stream, CUDA, on.index)
    return memory_pool.allocator(*_prepared(shape, dtype), prod(shape) * itemsize(dtype), on, stream)


_SMALL_BYTES: Final = 1 << 16
"""Bytes below which an allocation is not guarded: it takes 0.2 us, and if it fails, so does the Python interpreter."""


def _reporting(allocate: Callable[[], Any], shape: Shape, dtype: str) -> Callable[[], Any]:
    """`allocate`, with DeviceError where there is no memory."""

    def run() -> Any:
        try:
            return allocate()
        except (RuntimeError, MemoryError):
            raise _out_of_memory(shape, dtype) from None

    return run


@lru_cache(1024)
def _prepared(shape: Shape, dtype: str) -> tuple[Any, Any]:
    """A shape and a dtype as arguments of TVM's functions."""
    shape, dtype = stored_shape(shape, dtype)
    return tvm.unwrapped(tvm.Shape(shape)), tvm.unwrapped(tvm_dtype(dtype))


def require_memory(types: Iterable[TensorType]) -> None:
    """Raise DeviceError for a tensor on the CPU that is larger than the memory of this machine: before a kernel is
    built, which takes time for absurd sizes, and before the allocator would abort the process."""
    for t in types:
        if t.device is CPU and t.is_static:
            _check_memory(t.shape, t.dtype)


def _check_memory(shape: Shape, dtype: str) -> None:
    """Raise DeviceError for a tensor larger than the memory of this machine."""
    byte_count = prod(shape) * itemsize(dtype)
    memory = host_memory()
    if byte_count > 2 * memory:
        problem = f"cannot allocate {shape} {dtype} on cpu: {byte_count:,} bytes"
        raise DeviceError("memory", problem, f"at most {memory:,}", "use smaller arrays")


@cache
def host_memory() -> int:
    """Bytes of the host's memory; 2**62 on systems that do not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 62
