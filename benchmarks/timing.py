"""Medians of interleaved measurements."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Work = Callable[[], Any]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    value: meta's measurement in `unit`.  reference: torch's measurement, None without a counterpart.
    limit: the target, of value / reference if there is a reference.  measured: the number compared with the limit.
    """

    name: str
    value: float
    reference: float | None
    unit: str
    limit: float

    @property
    def measured(self) -> float:
        return self.value if self.reference is None else self.value / self.reference

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"measured": self.measured, "holds": self.holds}


def medians(
    *works: Work, seconds: float = 1.0, rounds: int = 31, fewest: int | None = None, clock: Clock = time.perf_counter
) -> list[float]:
    """Median seconds per call of each function.

    The functions take turns, so a slow phase of the machine slows all of them. Each turn is long enough to time.

    fewest: so many rounds are enough where more take longer than `seconds`; None for `rounds`.
    clock: seconds; `time.process_time` leaves out the time of other processes.
    """
    for work in works:
        for _ in range(3):
            work()
    once = [max(_time(work, 1, clock), _time(work, 1, clock), 1e-7) for work in works]
    counts = [max(1, int(seconds / rounds / len(works) / each)) for each in once]
    turns = rounds if fewest is None else max(fewest, min(rounds, int(seconds / sum(once))))
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(turns):
        for work, count, sample in zip(works, counts, samples, strict=True):
            sample.append(_time(work, count, clock))
    return [statistics.median(sample) for sample in samples]


def _time(work: Work, count: int, clock: Clock) -> float:
    turns = range(count)
    start = clock()
    for _ in turns:
        work()
    return (clock() - start) / count


def ratio(name: str, ours: Work, torch_work: Work, limit: float, *, per: int = 1, seconds: float = 1.5) -> Row:
    """A row that compares `ours` with `torch_work`; a call of either does `per` operations."""
    measured, reference = medians(ours, torch_work, seconds=seconds)
    return Row(name, measured / per * 1e6, reference / per * 1e6, "us", limit)


def processor_seconds() -> float:
    """User and system time of this process and all processes that it has started and they have, such as compilers."""
    own = os.times()
    times = {os.getpid(): sum(own[:4])}  # those that ended are counted when their parents wait for them
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            fields = path.read_text().rpartition(")")[2].split()
            process = int(path.parent.name)
            parents[process] = int(fields[1])
            seconds[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    count = 0
    while count < len(times):
        count = len(times)
        times |= {p: seconds[p] for p, parent in parents.items() if parent in times and p not in times}
    return sum(times.values())
