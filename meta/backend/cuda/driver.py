"""The CUDA driver through cuda.bindings: what TVM's runtime has no function for.

Streams and graphs are the driver's handles, as int; stream 0 is the default stream.
"""

from __future__ import annotations

from functools import cache
from threading import local
from typing import Any, Final

from meta.backend.cuda.bindings import bindings
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.errors import DeviceError

_CUDA: Final = 2  # DLPack's number for the kind
_LEGACY_STREAMS: Final = (0, 1)
"""Handles of the default stream, which cannot be captured."""
_thread = local()


@cache
def library() -> Any:
    """The module `cuda.bindings.driver`, with the driver initialised if there is a device.

    Raises DeviceError where the package or the driver is missing."""
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
    """The result of a function of the driver, or a tuple of them; raises DeviceError, with the function's name and the
    driver's name of the error, when it fails."""
    status, *results = getattr(library(), name)(*args)
    if status:
        raise DeviceError("cuda", f"{name} failed: {error_text(status)}", remedy="see the documentation of the driver")
    return results[0] if len(results) == 1 else tuple(results)


def error_text(status: Any) -> str:
    """The driver's name for a status, and its number."""
    return f"{status.name} ({int(status)})"


@cache
def device_count() -> int:
    """How many GPUs this process sees."""
    return call("cuDeviceGetCount")


def enter(on: Device) -> None:
    """Make `on` the device of this thread, so that the driver's functions concern it."""
    if getattr(_thread, "device", None) is not on:
        tvm.set_device(_CUDA, on.index)
        _thread.device = on


def memory(on: Device) -> tuple[int, int]:
    """(free, total) bytes of the device, by the driver."""
    enter(on)
    free, total = call("cuMemGetInfo")
    return free, total


def copy(target: int, source: int, count: int, stream: int) -> None:
    """Copy bytes between any two addresses, in the order of a stream."""
    call("cuMemcpyAsync", target, source, count, stream)


def synchronize(stream: int) -> None:
    """Wait until the work given to a stream is done."""
    call("cuStreamSynchronize", stream)


def synchronize_all() -> None:
    """Wait until the work given to the device of this thread is done."""
    call("cuCtxSynchronize")


def wait_for(waiting: int, other: int) -> None:
    """Work given to `waiting` from now on starts when what `other` has been given so far is done."""
    event = call("cuEventCreate", library().CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
    try:
        call("cuEventRecord", event, other)
        call("cuStreamWaitEvent", waiting, event, 0)
    finally:
        call("cuEventDestroy", event)


def new_stream() -> int:
    """A stream that runs beside the default one."""
    return int(call("cuStreamCreate", library().CUstream_flags.CU_STREAM_NON_BLOCKING.value))


def capturing(stream: int) -> bool:
    """Whether work given to the stream is being recorded into a CUDA graph."""
    return stream not in _LEGACY_STREAMS and bool(int(call("cuStreamIsCapturing", stream)))


def begin_capture(stream: int) -> None:
    """Record what the stream is given from now on, instead of running it. Calls of other threads do not disturb it."""
    call("cuStreamBeginCapture", stream, library().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)


def end_capture(stream: int) -> int:
    """The executable graph of what was recorded."""
    graph = call("cuStreamEndCapture", stream)
    try:
        return int(call("cuGraphInstantiate", graph, 0))
    finally:
        call("cuGraphDestroy", graph)


def abandon_capture(stream: int) -> None:
    """End a capture that failed, keeping nothing."""
    status, graph = library().cuStreamEndCapture(stream)
    if not status and int(graph):
        library().cuGraphDestroy(graph)


def launch_graph(executable: int, stream: int) -> None:
    """Run a graph."""
    call("cuGraphLaunch", executable, stream)


def free_graph(executable: int) -> None:
    """Forget a graph; safe when Python shuts down."""
    library().cuGraphExecDestroy(executable)
