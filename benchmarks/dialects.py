"""`python -m benchmarks.dialects [--device cuda] [--op NAME]`: time each operator in each accepting dialect.

The calls are those of `benchmarks.problems` and, for other operators, samples of the operator tests with larger sizes.
Each line lists the times by descending plevel; the last lines repeat the calls whose first dialect is not the fastest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import meta
from benchmarks.problems import problems
from meta.eager.call import invoke, state
from meta.errors import MetaError
from meta.op.dispatch import Implementation, with_dialect
from meta.testing.call import OperatorCall
from meta.testing.dialects import accepting_implementations
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T
from tests.python.op.samples import samples

FACTORS = (32, 8, 1)
"""Factors for the sizes of a sample; the first one that the operator accepts is used."""
MAX_ELEMENTS = 1 << 26
"""Largest number of elements of an operand."""
SLOWER_RATIO = 1.1
"""Ratio of times above which a dialect counts as slower."""


@dataclass(frozen=True, slots=True)
class Timing:
    """An implementation and its median microseconds per call."""

    implementation: Implementation
    microseconds: float

    def __str__(self) -> str:
        i = self.implementation
        return f"{i.dialect.name} ({i.plevel}) {self.microseconds:.1f} us"


def enlarge(row: Sample, factor: int) -> Sample:
    """The sample with every size above 1 multiplied by `factor`."""

    def enlarge_tensor(t: T, _: str) -> T:
        shape = tuple(d * factor if d > 1 else d for d in t.shape)
        return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct)

    args, kwargs = row.map(enlarge_tensor)
    return Sample(row.op, *args, ref=row.ref, id=f"{row.id}-x{factor}", **kwargs)


def enlarged_calls(row: Sample, device: str) -> Iterator[OperatorCall]:
    """Calls of the sample with enlarged sizes, from large to small."""
    for factor in FACTORS:
        enlarged = enlarge(row, factor) if factor > 1 else row
        try:
            if not enlarged.accepts("float32"):
                continue
            host = make_call(enlarged, "float32")
            if max((a.size for a in host.arrays()), default=0) <= MAX_ELEMENTS:
                yield host.to_meta(device)
        except (MetaError, ValueError):
            continue


def measure(row: Sample, device: str, largest: bool) -> list[Timing]:
    """The timings of the implementations that accept the call, by descending plevel; with `largest`, of the largest
    call that runs."""
    for call in enlarged_calls(row, device) if largest else [make_call(row, "float32").to_meta(device)]:
        accepting = accepting_implementations(call)
        if len(accepting) < 2:
            return []
        try:
            return [Timing(i, _time(i, call, device)) for i in accepting]
        except (MetaError, RuntimeError):
            continue
    return []


def _time(implementation: Implementation, call: OperatorCall, device: str) -> float:
    work = partial(invoke, state(call.op), *call.bound_arguments())
    with with_dialect(implementation.dialect.name):
        _repeat(work, 3, device)
        once = _repeat(work, 3, device)
        count = max(1, min(200, int(0.01 / once)))
        return statistics.median(_repeat(work, count, device) for _ in range(7)) * 1e6


def _repeat(work: Callable[[], Any], count: int, device: str) -> float:
    """Seconds per call over `count` calls, including the work on the device."""
    meta.synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        work()
    meta.synchronize(device)
    return (time.perf_counter() - start) / count


def rows(ops: Sequence[str] | None) -> Iterator[tuple[Sample, bool]]:
    """The samples to measure, and whether to enlarge their sizes."""
    visited: set[str] = set()
    for row in problems():
        visited.add(row.op)
        if not ops or row.op in ops:
            yield row, False
    for row in samples():
        if row.op not in visited and row.check is None and row.is_floating and (not ops or row.op in ops):
            visited.add(row.op)
            yield row, True


def main(argv: Sequence[str] | None = None) -> int:
    """Print the timings of each call that several dialects accept, then the calls whose priorities are wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialects", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--op", action="append", help="only these operators")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about this many seconds")
    options = parser.parse_args(argv)
    start, slower = time.monotonic(), list[str]()
    for row, largest in rows(options.op):
        if time.monotonic() - start > options.seconds:
            print(f"stopped before {row!r}: out of time")
            break
        timings = [t for t in measure(row, options.device, largest) if t.implementation.dialect.name != "reference"]
        if len(timings) < 2:
            continue
        line = f"{row!r}: " + ", ".join(map(str, timings))
        print(line, flush=True)
        best = min(t.microseconds for t in timings)
        if timings[0].microseconds > SLOWER_RATIO * best:
            slower.append(line)
    print(f"\n{len(slower)} calls whose first dialect is not the fastest on {options.device}:")
    print("\n".join(slower) or "none")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
