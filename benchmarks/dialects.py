"""`python -m benchmarks.dialects [--device cuda] [--op NAME] [--write]`: each operator by each dialect that accepts it.

The calls are those of `benchmarks.problems`; for operators that are not among them, rows of the operator tests with
every size made larger. Printed are the times, the dialect that dispatch chooses first, and at last where it is not the
fastest. With `--write`, both sides of the crossover limits are measured instead, and meta/op/crossover.py is rewritten.
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
from meta.testing.call import Call
from meta.testing.dialects import accepting_implementations
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T
from tests.python.op.samples import samples

FACTORS = (32, 8, 1)
"""By how much the sizes of a row are multiplied: the first that the operator accepts."""
MOST = 1 << 26
"""Elements that an operand may have."""
NOISE = 1.1
"""A dialect counts as slower than another from this ratio on."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An implementation and the median microseconds of a call."""

    implementation: Implementation
    microseconds: float

    def __str__(self) -> str:
        i = self.implementation
        return f"{i.dialect.name} ({i.plevel}) {self.microseconds:.1f} us"


def enlarged(row: Sample, factor: int) -> Sample:
    """The row with every size above 1 multiplied."""

    def larger(t: T, _: str) -> T:
        shape = tuple(d * factor if d > 1 else d for d in t.shape)
        return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct)

    args, kwargs = row.map(larger)
    return Sample(row.op, *args, ref=row.ref, id=f"{row.id}-x{factor}", **kwargs)


def calls(row: Sample, device: str) -> Iterator[Call]:
    """Calls of the row from large to small."""
    for factor in FACTORS:
        larger = enlarged(row, factor) if factor > 1 else row
        try:
            if not larger.accepts("float32"):
                continue
            host = make_call(larger, "float32")
            if max((a.size for a in host.arrays()), default=0) <= MOST:
                yield host.to_meta(device)
        except (MetaError, ValueError):
            continue


def measured(row: Sample, device: str, largest: bool) -> list[Measured]:
    """The implementations that take the call, in the order of preference; with `largest`, the largest one that any
    of them takes."""
    for call in calls(row, device) if largest else [make_call(row, "float32").to_meta(device)]:
        found = accepting_implementations(call)
        if len(found) < 2:
            return []
        try:
            return [Measured(i, _time(i, call, device)) for i in found]
        except (MetaError, RuntimeError):
            continue
    return []


def _time(implementation: Implementation, call: Call, device: str) -> float:
    work = partial(invoke, state(call.op), *call.bound_arguments())
    with with_dialect(implementation.dialect.name):
        _repeat(work, 3, device)
        once = _repeat(work, 3, device)
        count = max(1, min(200, int(0.01 / once)))
        return statistics.median(_repeat(work, count, device) for _ in range(7)) * 1e6


def _repeat(work: Callable[[], Any], count: int, device: str) -> float:
    """Seconds of one of `count` calls, until the device has done them."""
    meta.synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        work()
    meta.synchronize(device)
    return (time.perf_counter() - start) / count


def rows(ops: Sequence[str] | None) -> Iterator[tuple[Sample, bool]]:
    """What is measured, and whether it is to be made larger."""
    seen: set[str] = set()
    for row in problems():
        seen.add(row.op)
        if not ops or row.op in ops:
            yield row, False
    for row in samples():
        if row.op not in seen and row.check is None and row.is_floating and (not ops or row.op in ops):
            seen.add(row.op)
            yield row, True


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each call that several dialects take; then the wrong priorities."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialects", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--op", action="append", help="only these operators")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about as long")
    parser.add_argument("--write", action="store_true", help="measure the crossover limits and rewrite their table")
    options = parser.parse_args(argv)
    if options.write:
        return _rewrite(options.device, options.op)
    start, wrong = time.monotonic(), list[str]()
    for row, largest in rows(options.op):
        if time.monotonic() - start > options.seconds:
            print(f"stopped before {row!r}: out of time")
            break
        found = [m for m in measured(row, options.device, largest) if m.implementation.dialect.name != "reference"]
        if len(found) < 2:
            continue
        line = f"{row!r}: " + ", ".join(map(str, found))
        print(line, flush=True)
        best = min(m.microseconds for m in found)
        if found[0].microseconds > NOISE * best:
            wrong.append(line)
    print(f"\n{len(wrong)} calls whose first dialect is not the fastest on {options.device}:")
    print("\n".join(wrong) or "none")
    return 0


def _rewrite(device: str, ops: Sequence[str] | None) -> int:
    """Measure the crossover limits of a device again and write those that moved."""
    from benchmarks import crossovers

    fresh = dict(crossovers.remeasure(device, ops, crossovers.machine_name(device)))
    crossovers.write([fresh.get(limit, limit) for limit in crossovers.crossover.LIMITS])
    for old, new in fresh.items():
        print(f"{old.dialect} {old.operators} {old.unit}: {old.least}..{old.most} -> {new.least}..{new.most}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
