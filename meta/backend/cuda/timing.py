"""How long kernels keep a GPU busy."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from meta.backend.cuda import driver

_TIMED = 0
"""Flags of an event that takes the time."""


def milliseconds(run: Callable[[], None], stream: int, times: int, each: int) -> float:
    """The median time that the device takes for `each` runs one after the other, over `times` of these."""
    events = driver.call("cuEventCreate", _TIMED), driver.call("cuEventCreate", _TIMED)
    try:
        return median(_milliseconds_of(run, stream, events, each) for _ in range(times))
    finally:
        for event in events:
            driver.call("cuEventDestroy", event)


def _milliseconds_of(run: Callable[[], None], stream: int, events: tuple[Any, Any], each: int) -> float:
    start, end = events
    driver.call("cuEventRecord", start, stream)
    for _ in range(each):
        run()
    driver.call("cuEventRecord", end, stream)
    driver.call("cuEventSynchronize", end)
    return driver.call("cuEventElapsedTime", start, end)
