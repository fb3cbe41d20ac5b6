"""The CUDA driver through cuda.bindings, for operations that TVM's runtime lacks.

Streams and graphs are the driver's handles, as int; stream 0 is the default stream.
"""

from __future__ import annotations

from functools import cache
from threading import local
from typing import Any

from meta.backend.cuda.bindings import bindings
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import CUDA
from meta.device import Device
from meta.errors import DeviceError

_thread = local()


@cache
def library() -> Any:
    """The module `cuda.bindings.driver`, with the driver initialised if there is a device.

    Raises DeviceError if the package or the driver is missing."""
    module = bindings("driver")
    try:
        module.cuInit(0)
    except (RuntimeError, OSError) as error:
        raise DeviceError(
            "device", f"there is no CUDA driver here: {error}", '"cpu", which every machine has'
        ) from None
    return module


def probe() -> str | None:
    """Why this machine has no CUDA, with the remedy; None where it has."""
    try:
        module = library()
    except DeviceError as error:
        return "; ".join(part for part in (error.problem, error.remedy) if part)
    status = module.cuInit(0)[0]
    if status:
        return f"the CUDA driver does not start: {error_text(status)}"
    return None if device_count() else "no CUDA device"


def call(name: str, *args: Any) -> Any:
    """Call a function of the driver; returns its result, or a tuple of several.

    Raises DeviceError with the names of the function and of the error if the call fails."""
    status, *results = getattr(library(), name)(*args)
    if status:
        raise DeviceError("cuda", f"{name} failed: {error_text(status)}", remedy="see the documentation of the driver")
    return results[0] if len(results) == 1 else tuple(results)


def version() -> tuple[int, int]:
    """The newest version of CUDA whose programs the driver runs."""
    thousands, rest = divmod(call("cuDriverGetVersion"), 1000)
    return thousands, rest // 10


def error_text(status: Any) -> str:
    """The name of a status in the driver, and its number."""
    return f"{status.name} ({int(status)})"


@cache
def device_count() -> int:
    """The number of GPUs visible to this process."""
    return call("cuDeviceGetCount")


def set_device(on: Device) -> None:
    """Make `on` the current device of this thread, which the driver's functions act on. Of several devices it is set in
    each call, since others, such as torch, set another in between."""
    if getattr(_thread, "device", None) is not on or device_count() > 1:
        tvm.set_device(CUDA, on.index)
        _thread.device = on


def memory_info(on: Device) -> tuple[int, int]:
    """(free, total) bytes of the device, as the driver reports them."""
    set_device(on)
    free, total = call("cuMemGetInfo")
    return free, total


def copy(target: int, source: int, byte_count: int, stream: int) -> None:
    """Queue a copy of bytes between two addresses on a stream."""
    call("cuMemcpyAsync", target, source, byte_count, stream)


def synchronize(stream: int) -> None:
    """Wait until the work queued on a stream is done."""
    call("cuStreamSynchronize", stream)


def synchronize_all() -> None:
    """Wait until all work queued on the current device is done."""
    call("cuCtxSynchronize")


def make_stream_wait(stream: int, other: int) -> None:
    """Have work queued on `stream` from now on wait for the work queued on `other` so far."""
    wait_for_event(stream, record_event(other))


def record_event(stream: int) -> Any:
    """An event that happens when the work queued on the stream so far is done; `wait_for_event` frees it."""
    event = call("cuEventCreate", library().CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
    call("cuEventRecord", event, stream)
    return event


def wait_for_event(stream: int, event: Any) -> None:
    """Have work queued on `stream` from now on wait for an event of `record_event`, which is freed."""
    try:
        call("cuStreamWaitEvent", stream, event, 0)
    finally:
        call("cuEventDestroy", event)


def create_stream() -> int:
    """Create a stream that does not synchronise with the default stream."""
    return int(call("cuStreamCreate", library().CUstream_flags.CU_STREAM_NON_BLOCKING.value))


def is_capturing(stream: int) -> bool:
    """Whether work queued on the stream is recorded into a CUDA graph."""
    legacy_streams = (0, 1)  # Handles of the default stream, which cannot be captured.
    return stream not in legacy_streams and bool(int(call("cuStreamIsCapturing", stream)))


def begin_capture(stream: int) -> None:
    """Record work queued on the stream from now on instead of running it. Calls of other threads do not interfere."""
    call("cuStreamBeginCapture", stream, library().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)


def end_capture(stream: int) -> int:
    """End a capture; returns the executable graph of the recorded work."""
    graph = call("cuStreamEndCapture", stream)
    try:
        return int(call("cuGraphInstantiate", graph, 0))
    finally:
        call("cuGraphDestroy", graph)


def abandon_capture(stream: int) -> None:
    """End a failed capture and discard its graph."""
    status, graph = library().cuStreamEndCapture(stream)
    if not status and int(graph):
        library().cuGraphDestroy(graph)


def launch_graph(executable: int, stream: int) -> None:
    """Queue a run of a graph on a stream."""
    call("cuGraphLaunch", executable, stream)


def free_graph(executable: int) -> None:
    """Free a graph; safe while Python shuts down."""
    library().cuGraphExecDestroy(executable)
