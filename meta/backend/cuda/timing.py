"""Time that kernels take on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from meta.backend.cuda import driver


def measure_milliseconds(run: Callable[[], None], stream: int, repeats: int, runs: int) -> float:
    """The median time on the device of `runs` consecutive runs, over `repeats` measurements."""
    timed = 0  # Flags of an event that records its time.
    events = driver.call("cuEventCreate", timed), driver.call("cuEventCreate", timed)
    try:
        return median(_measure_once(run, stream, events, runs) for _ in range(repeats))
    finally:
        for event in events:
            driver.call("cuEventDestroy", event)


def _measure_once(run: Callable[[], None], stream: int, events: tuple[Any, Any], runs: int) -> float:
    start, end = events
    driver.call("cuEventRecord", start, stream)
    for _ in range(runs):
        run()
    driver.call("cuEventRecord", end, stream)
    driver.call("cuEventSynchronize", end)
    return driver.call("cuEventElapsedTime", start, end)
