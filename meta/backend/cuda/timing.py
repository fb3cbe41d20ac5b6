"""What the dialect asks of the CUDA driver beyond what memory and streams need: the state of capture, and time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any, Final

from meta.backend.cuda import driver as cuda

_LEGACY: Final = (0, 1)
"""Handles of the default stream, which cannot be captured."""


@cache
def device_count() -> int:
    """How many GPUs this process sees."""
    count = ctypes.c_int()
    cuda.call("cuInit", 0)
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def capturing(stream: int) -> bool:
    """Whether work given to the stream is being recorded into a CUDA graph."""
    if stream in _LEGACY:
        return False
    state = ctypes.c_int()
    cuda.call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(state))
    return state.value != 0


def milliseconds(run: Callable[[], None], stream: int, times: int, each: int) -> float:
    """The median time that the device takes for `each` runs one after the other, over `times` of these."""
    events = _event(), _event()
    try:
        return median(_timed(run, ctypes.c_void_p(stream), events, each) for _ in range(times))
    finally:
        for event in events:
            cuda.call("cuEventDestroy_v2", event)


def _event() -> Any:
    made = ctypes.c_void_p()
    cuda.call("cuEventCreate", ctypes.byref(made), 0)
    return made


def _timed(run: Callable[[], None], stream: Any, events: tuple[Any, Any], each: int) -> float:
    start, end = events
    passed = ctypes.c_float()
    cuda.call("cuEventRecord", start, stream)
    for _ in range(each):
        run()
    cuda.call("cuEventRecord", end, stream)
    cuda.call("cuEventSynchronize", end)
    cuda.call("cuEventElapsedTime", ctypes.byref(passed), start, end)
    return passed.value
