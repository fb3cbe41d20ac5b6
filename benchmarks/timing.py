"""Medians of interleaved measurements."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    value: what was measured, in `unit`.  reference: the same of torch (None where there is no counterpart).
    limit: the target; for a ratio, of value / reference.  measured: the number that is held against the limit.
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


def medians(*works: Work, seconds: float = 1.0, rounds: int = 31) -> list[float]:
    """Median seconds of one call of each of `works`.

    They take turns, so that a slow phase of the machine slows them all; each turn lasts long enough to measure."""
    for work in works:
        for _ in range(3):
            work()
    counts = [_count(work, seconds / rounds / len(works)) for work in works]
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, count, sample in zip(works, counts, samples, strict=True):
            sample.append(_time(work, count))
    return [statistics.median(sample) for sample in samples]


def _count(work: Work, seconds: float) -> int:
    """How many calls take about `seconds`."""
    once = max(_time(work, 1), _time(work, 1), 1e-7)
    return max(1, int(seconds / once))


def _time(work: Work, count: int) -> float:
    turns = range(count)
    start = time.perf_counter()
    for _ in turns:
        work()
    return (time.perf_counter() - start) / count


def ratio(name: str, ours: Work, torch_work: Work, limit: float, *, per: int = 1, seconds: float = 1.5) -> Row:
    """A row that compares `ours` with `torch_work`, both doing `per` operations a call."""
    mine, theirs = medians(ours, torch_work, seconds=seconds)
    return Row(name, mine / per * 1e6, theirs / per * 1e6, "us", limit)
