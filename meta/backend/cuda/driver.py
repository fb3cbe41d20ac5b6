"""The CUDA driver by ctypes: what TVM's runtime has no function for. `libcuda` comes with the driver, not with CUDA.

Streams and graphs are the driver's handles, as int; stream 0 is the default stream.
"""

from __future__ import annotations

import ctypes
from functools import cache
from threading import local
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.errors import DeviceError

_CUDA: Final = 2  # DLPack's number for the kind
_NON_BLOCKING: Final = 1
_NO_TIMING: Final = 2
_THREAD_LOCAL: Final = 1
"""A capture that calls of other threads do not disturb."""
_thread = local()


@cache
def library() -> Any:
    """The loaded driver. Raises DeviceError when this machine has none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "device", f"there is no CUDA driver here: {error}", '"cpu", which every machine has'
        ) from None


def probe() -> str | None:
    """Why there is no CUDA here, None where there is."""
    try:
        count = ctypes.c_int()
        status = library().cuInit(0) or library().cuDeviceGetCount(ctypes.byref(count))
    except DeviceError:
        return "no CUDA driver (libcuda.so.1)"
    if status:
        return f"the CUDA driver does not start: {error_text(status)}"
    return None if count.value else "no CUDA device"


def call(name: str, *args: Any) -> None:
    """Call a function of the driver; raises DeviceError, with its name and the driver's words, when it fails."""
    status = getattr(library(), name)(*args)
    if status:
        raise DeviceError("cuda", f"{name} failed: {error_text(status)}", remedy="see the documentation of the driver")


def error_text(status: int) -> str:
    """The driver's name for a status."""
    text = ctypes.c_char_p()
    library().cuGetErrorName(status, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode()} ({status})"


def enter(on: Device) -> None:
    """Make `on` the device of this thread, so that the driver's functions concern it."""
    if getattr(_thread, "device", None) is not on:
        tvm.set_device(_CUDA, on.index)
        _thread.device = on


def memory(on: Device) -> tuple[int, int]:
    """(free, total) bytes of the device, by the driver."""
    enter(on)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def copy(target: int, source: int, count: int, stream: int) -> None:
    """Copy bytes between any two addresses, in the order of a stream."""
    call("cuMemcpyAsync", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(count),
         ctypes.c_void_p(stream))  # fmt: skip


def fill(target: int, value: int, count: int, stream: int) -> None:
    """Set bytes of the device."""
    call("cuMemsetD8Async", ctypes.c_uint64(target), ctypes.c_ubyte(value), ctypes.c_size_t(count),
         ctypes.c_void_p(stream))  # fmt: skip


def synchronize(stream: int) -> None:
    """Wait until the work given to a stream is done."""
    call("cuStreamSynchronize", ctypes.c_void_p(stream))


def synchronize_all() -> None:
    """Wait until the work given to the device of this thread is done."""
    call("cuCtxSynchronize")


def wait_for(waiting: int, other: int) -> None:
    """Work given to `waiting` from now on starts when what `other` has been given so far is done."""
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
    try:
        call("cuEventRecord", event, ctypes.c_void_p(other))
        call("cuStreamWaitEvent", ctypes.c_void_p(waiting), event, 0)
    finally:
        call("cuEventDestroy_v2", event)


def new_stream() -> int:
    """A stream that runs beside the default one."""
    stream = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
    return int(stream.value or 0)


def begin_capture(stream: int) -> None:
    """Record what the stream is given from now on, instead of running it."""
    call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _THREAD_LOCAL)


def end_capture(stream: int) -> int:
    """The executable graph of what was recorded."""
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
    try:
        call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
    finally:
        call("cuGraphDestroy", graph)
    return int(executable.value or 0)


def abandon_capture(stream: int) -> None:
    """End a capture that went wrong, keeping nothing."""
    graph = ctypes.c_void_p()
    if not library().cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) and graph.value:
        library().cuGraphDestroy(graph)


def launch_graph(executable: int, stream: int) -> None:
    """Run a graph."""
    call("cuGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))


def free_graph(executable: int) -> None:
    """Forget a graph; safe when Python shuts down."""
    library().cuGraphExecDestroy(ctypes.c_void_p(executable))
