"""The functions of the CUDA driver that kernels need beside cuDNN: contexts, copies, events, the state of capture."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Final

from meta.op.dialect.cudnn._shared import Functions, StatusError

_SIGNATURES: Final = {
    "cuInit": "u",
    "cuDeviceGetCount": "p",
    "cuDeviceGet": "pi",
    "cuDevicePrimaryCtxRetain": "pi",
    "cuCtxSetCurrent": "p",
    "cuMemcpyDtoDAsync_v2": "ppzp",
    "cuStreamSynchronize": "p",
    "cuStreamIsCapturing": "pp",
    "cuEventCreate": "pu",
    "cuEventRecord": "pp",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "ppp",
    "cuEventDestroy_v2": "p",
}
_LEGACY: Final = (0, 1)
"""Handles of the default stream, which cannot be captured."""


@cache
def functions() -> Functions:
    """The driver, initialised. Raises OSError where there is none, StatusError where it does not start."""
    library = ctypes.CDLL("libcuda.so.1")

    def explain(status: int) -> tuple[str, str]:
        text = ctypes.c_char_p()
        library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
        return (text.value or b"an unknown status").decode(), ""

    found = Functions(library, _SIGNATURES, explain)
    found.cuInit(0)
    return found


@cache
def device_count() -> int:
    """How many GPUs this process sees. Raises as `functions` does."""
    count = ctypes.c_int()
    functions().cuDeviceGetCount(ctypes.byref(count))
    return count.value


def missing() -> str | None:
    """Why no GPU can be used, None if one can."""
    try:
        count = device_count()
    except OSError:
        return "no CUDA device: libcuda.so.1 is not installed"
    except StatusError as error:
        return f"no CUDA device: {error}"
    return None if count else "no CUDA device: the driver sees none"


@cache
def _context(index: int) -> int:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    functions().cuDeviceGet(ctypes.byref(device), index)
    functions().cuDevicePrimaryCtxRetain(ctypes.byref(context), device.value)
    return context.value or 0


def use(index: int) -> None:
    """Make device `index` the one that this thread's calls go to."""
    functions().cuCtxSetCurrent(_context(index))


def copy(target: int, source: int, size: int, stream: int) -> None:
    """Copy `size` bytes between addresses on the device, in stream order."""
    functions().cuMemcpyDtoDAsync_v2(target, source, size, stream)


def synchronize(stream: int) -> None:
    """Wait for the work in a stream."""
    functions().cuStreamSynchronize(stream)


def capturing(stream: int) -> bool:
    """Whether work given to the stream is being recorded into a CUDA graph."""
    if stream in _LEGACY:
        return False
    state = ctypes.c_int()
    functions().cuStreamIsCapturing(stream, ctypes.byref(state))
    return state.value != 0


def milliseconds(run: Callable[[], None], stream: int, times: int, each: int) -> float:
    """The median time that the device takes for `each` runs one after the other, over `times` of these."""
    cu = functions()
    start, end = ctypes.c_void_p(), ctypes.c_void_p()
    cu.cuEventCreate(ctypes.byref(start), 0)
    cu.cuEventCreate(ctypes.byref(end), 0)
    try:
        return median(_timed(run, stream, start, end, each) for _ in range(times))
    finally:
        cu.cuEventDestroy_v2(start)
        cu.cuEventDestroy_v2(end)


def _timed(run: Callable[[], None], stream: int, start: ctypes.c_void_p, end: ctypes.c_void_p, each: int) -> float:
    cu, passed = functions(), ctypes.c_float()
    cu.cuEventRecord(start, stream)
    for _ in range(each):
        run()
    cu.cuEventRecord(end, stream)
    cu.cuEventSynchronize(end)
    cu.cuEventElapsedTime(ctypes.byref(passed), start, end)
    return passed.value
