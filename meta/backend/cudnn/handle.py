"""Handles of cuDNN: one a thread, device and stream, and the scratch memory of the kernels that run through them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from threading import local
from typing import Any

from meta.backend.cuda import driver as cuda
from meta.backend.cuda import streams
from meta.backend.cudnn import library
from meta.backend.memory import allocation
from meta.backend.tvm import devices
from meta.device import Device
from meta.ir.type import tensor_type


class Handle:
    """A cudnnHandle_t bound to a stream. pointer: the handle.  stream: what it launches on now.
    frontend: what nvidia-cudnn-frontend knows the handle as, made by `_frontend`."""

    __slots__ = ("__weakref__", "device", "frontend", "pointer", "stream")

    def __init__(self, device: Device, stream: int) -> None:
        made = ctypes.c_void_p()
        cuda.enter(device)
        library.functions().cudnnCreate(ctypes.byref(made))
        self.device = device
        self.pointer: int = made.value or 0
        self.stream = 0
        self.frontend: Any = None
        self.bind(stream)
        # Threads end long before the process does; at its very end the driver may be gone already.
        weakref.finalize(self, library.functions().cudnnDestroy, self.pointer).atexit = False

    def bind(self, stream: int) -> None:
        """Launch on `stream` from now on."""
        library.functions().cudnnSetStream(self.pointer, stream)
        self.stream = stream
        if self.frontend is not None:
            self.frontend.stream = stream


class _Handles(local):
    """Those of one thread, by (device, stream)."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], Handle] = {}


_handles = _Handles()
LIMIT = 32
"""Handles a thread keeps; a program that goes through more streams starts over."""


def handles(device: Device) -> Callable[[], Handle]:
    """A function of no arguments that gives the handle for the stream that this thread's kernels run on."""
    devices.require(device)  # loads TVM's runtime of CUDA, which keeps the current stream
    stream, index, several = streams.stream_getter(device), device.index, cuda.device_count() > 1

    def current() -> Handle:
        on = stream()
        found = _handles.known.get((index, on))
        if found is None or found.stream != on:
            found = _open(device, on)
        if several:
            cuda.enter(device)
        return found

    return current


def _open(device: Device, stream: int) -> Handle:
    known = _handles.known
    found = known.get((device.index, stream))
    if found is not None:
        found.bind(stream)
        return found
    if cuda.capturing(stream):
        # Making a handle allocates, which a stream that is being captured forbids: borrow one of another stream.
        # It goes back to its own with the next call there.
        for (index, _), lent in known.items():
            if index == device.index:
                lent.bind(stream)
                return lent
    if len(known) >= LIMIT:
        known.clear()
    made = known[device.index, stream] = Handle(device, stream)
    return made


class Workspace:
    """The scratch memory of one kernel, from the pool in every call."""

    __slots__ = ("_new", "size")

    def __init__(self, device: Device, size: int) -> None:
        self.size = size
        self._new = allocation.allocator(tensor_type((size,), "uint8", device)) if size else None

    def take(self) -> Any:
        """A tensor to keep until the kernel is launched, None for no memory. The pool hands memory on in stream order,
        so that it may go back as soon as the launch is made."""
        return None if self._new is None else self._new()


def address(tensor: Any) -> int:
    """Where the memory of a raw tensor begins; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()
