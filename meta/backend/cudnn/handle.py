"""Handles of cuDNN, one per thread, device and stream; scratch memory of kernels."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from threading import local
from typing import Any

from meta.backend.cuda import driver as cuda
from meta.backend.cuda import streams
from meta.backend.cudnn import loader
from meta.backend.memory import allocation
from meta.backend.tvm import devices
from meta.device import Device
from meta.ir.type import tensor_type


class Handle:
    """A cudnnHandle_t bound to a stream. pointer: the cudnnHandle_t.  stream: the stream of its launches.
    frontend: the handle object of nvidia-cudnn-frontend, created at its first use."""

    __slots__ = ("__weakref__", "device", "frontend", "pointer", "stream")

    def __init__(self, device: Device, stream: int) -> None:
        handle = ctypes.c_void_p()
        cuda.set_device(device)
        loader.functions().cudnnCreate(ctypes.byref(handle))
        self.device = device
        self.pointer: int = handle.value or 0
        self.stream = 0
        self.frontend: Any = None
        self.bind(stream)
        # Handles are destroyed when their thread ends, but not at exit, when the driver may be unloaded already.
        weakref.finalize(self, loader.functions().cudnnDestroy, self.pointer).atexit = False

    def bind(self, stream: int) -> None:
        """Launch on `stream` from now on."""
        loader.functions().cudnnSetStream(self.pointer, stream)
        self.stream = stream
        if self.frontend is not None:
            self.frontend.stream = stream


class _ThreadHandles(local):
    """The handles of one thread, by (device, stream)."""

    def __init__(self) -> None:
        self.by_stream: dict[tuple[int, int], Handle] = {}


_thread = _ThreadHandles()
LIMIT = 32
"""Handles that a thread keeps; beyond it, all are released."""


def handle_getter(device: Device) -> Callable[[], Handle]:
    """A function of no arguments that returns the handle of this thread for the current stream."""
    devices.require(device)  # loads TVM's CUDA runtime, which keeps the current stream
    current_stream, index, has_several = streams.stream_getter(device), device.index, cuda.device_count() > 1

    def current_handle() -> Handle:
        stream = current_stream()
        handle = _thread.by_stream.get((index, stream))
        if handle is None or handle.stream != stream:
            handle = _open_handle(device, stream)
        if has_several:
            cuda.set_device(device)
        return handle

    return current_handle


def _open_handle(device: Device, stream: int) -> Handle:
    """A handle bound to the stream: an existing one, or a new one."""
    handles = _thread.by_stream
    handle = handles.get((device.index, stream))
    if handle is not None:
        handle.bind(stream)
        return handle
    if cuda.is_capturing(stream):
        # Creating a handle allocates, which a captured stream forbids: rebind the handle of another stream. The next
        # call on that stream binds it back.
        for (index, _), other in handles.items():
            if index == device.index:
                other.bind(stream)
                return other
    if len(handles) >= LIMIT:
        handles.clear()
    handle = handles[device.index, stream] = Handle(device, stream)
    return handle


class Workspace:
    """The scratch memory of one kernel, allocated from the pool in every call."""

    __slots__ = ("_allocate", "size")

    def __init__(self, device: Device, size: int) -> None:
        self.size = size
        self._allocate = allocation.allocator(tensor_type((size,), "uint8", device)) if size else None

    def take(self) -> Any:
        """Allocate the memory; None for size 0. The pool reuses memory in stream order, so the caller may release the
        tensor after the launch."""
        return None if self._allocate is None else self._allocate()


def address(tensor: Any) -> int:
    """The address of a raw tensor's memory; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()
