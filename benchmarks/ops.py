"""`python -m benchmarks.ops [--only NAME ...] [--seconds N] [--json FILE]`: operators with a TVM kernel against torch.

Each operator runs on sizes of 4 and on large sizes, forward, and forward with backward where both libraries have a
gradient: eager calls in one process on one thread, with the dialect that dispatch chooses. The counterpart in torch is
the reference of the operator's first sample in the tests. Operators whose names end in `_dx` and the like are measured
as the backward of their forward operators. Rows are sorted by the ratio of the times; a run that is bounded by
`--seconds` prints what it measured until then and how much is left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.dialects import enlarge
from benchmarks.problems import problems
from benchmarks.timing import Row, Work, ratio
from meta.dtype import is_inexact
from meta.errors import GradientError, MetaError
from meta.op.dispatch import implementations
from meta.testing.arrays import to_torch
from meta.testing.call import OperatorCall, flat_results
from meta.testing.derivatives import is_differentiable
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T, leaves
from tests.python.op.samples import samples

LIMIT = 1.5
"""Ratio above which a row is listed by itself."""
LARGE = 1 << 20
"""Elements of the largest operand of a large call, about."""
_BACKWARD = ("_dx", "_dw", "_dwb", "_dxb", "_dxw", "_dxwb")


@dataclass(frozen=True, slots=True)
class Problem:
    """A call of an operator on sizes of a class, "4" or "large"."""

    sample: Sample
    size: str


def problems_of(only: Sequence[str]) -> Iterator[Problem]:
    """The calls to measure of each operator that has samples with a reference and a TVM compute."""
    small_rows = {row.op: row for row in reversed(list(problems())) if _elements(row) <= 4 * LARGE}
    visited: set[str] = set()
    for row in samples():
        if row.op in visited or row.ref is None or row.op.endswith(_BACKWARD) or not _is_wanted(row.op, only):
            continue
        if not row.is_floating or not row.accepts("float32") or not _has_compute(row):
            continue
        visited.add(row.op)
        yield Problem(_square(row, 4), "4")
        yield Problem(_renamed(small_rows[row.op], row) if row.op in small_rows else _large(row), "large")


def _is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def _has_compute(row: Sample) -> bool:
    return any(i.dialect.name == "tvm" for i in implementations(row.operator))


def _elements(row: Sample) -> int:
    return max((prod(t.shape) for t in leaves(row.args, row.kwargs)), default=0)


def _renamed(problem: Sample, row: Sample) -> Sample:
    """A call of the dialects' benchmark with the reference of a sample."""
    return Sample(problem.op, *problem.args, ref=row.ref, **problem.kwargs)


def _resized(row: Sample, side: int) -> Sample:
    def resize(t: T, _: str) -> T:
        shape = tuple(side if d > 1 else d for d in t.shape)
        high = t.high if is_inexact(t.dtype) else min(t.high, max(side, t.low + 1))  # positions stay within bounds
        return T(*shape, dtype=t.dtype, low=t.low, high=high, avoid=t.avoid, distinct=t.distinct)

    args, kwargs = row.map(resize)
    return Sample(row.op, *args, ref=row.ref, **kwargs)


def _square(row: Sample, side: int) -> Sample:
    """The sample with sizes of `side`, the sample itself if the operator refuses those."""
    with suppress(MetaError, ValueError):
        resized = _resized(row, side)
        if resized.accepts("float32"):
            return resized
    return row


def _large(row: Sample) -> Sample:
    """The sample with the largest sizes that the operator accepts, up to LARGE elements."""
    axes = max((sum(d > 1 for d in t.shape) for t in leaves(row.args, row.kwargs)), default=0)
    side = round(LARGE ** (1 / axes)) if axes else 1
    square = _square(row, side)
    if square is not row:
        return square
    for factor in (256, 64, 32, 16, 8, 4, 2):
        with suppress(MetaError, ValueError):
            enlarged = enlarge(row, factor)
            if _elements(enlarged) <= LARGE and enlarged.accepts("float32"):
                return enlarged
    return row


def measured(problem: Problem, seconds: float) -> Iterator[Row]:
    """The rows of a call: forward, and with backward where both libraries differentiate the first result."""
    host = make_call(problem.sample, "float32")
    reference = problem.sample.ref
    assert reference is not None
    ours, theirs = host.to_meta(), host.map(to_torch)
    name = f"{problem.sample!r} {problem.size}"
    _require_same(ours, theirs, reference)
    yield ratio(f"{name} forward", _work(ours), _work(theirs, reference), LIMIT, seconds=seconds)
    if is_differentiable(problem.sample):
        both = _steps(host, reference)
        if both:
            yield ratio(f"{name} backward", *both, LIMIT, seconds=seconds)


def _work(call: OperatorCall, function: Any = None) -> Work:
    """A call of a function of torch, or of meta's function for the operator."""
    return partial(function or getattr(meta.ops, call.op.name), *call.args, **call.kwargs)


def _require_same(ours: OperatorCall, theirs: OperatorCall, reference: Any) -> None:
    """Raise ValueError where the reference does not compute what the operator does, tensors of the same shapes."""
    expected = theirs.apply(reference)
    for a, b in zip(flat_results(ours.run()), flat_results(expected), strict=False):
        if not isinstance(b, torch.Tensor) or tuple(a.shape) != tuple(b.shape):
            raise ValueError("the reference is not a function of torch with the same result")


def _steps(host: OperatorCall, reference: Any) -> tuple[Work, Work] | None:
    """A forward call with the gradients of all floating operands in both libraries; None if torch has none."""
    ours, theirs = host.to_meta(), host.map(to_torch)
    for x in ours.arrays():
        x.requires_grad = x.dtype == "float32"
    for t in theirs.arrays():
        t.requires_grad_(t.is_floating_point())
    y, expected = flat_results(ours.run())[0], flat_results(theirs.apply(reference))[0]
    if not (y.requires_grad and expected.requires_grad and expected.is_floating_point()):
        return None
    values = np.ones(y.shape, np.float32)
    step = _step(_work(ours), meta.array(values))
    try:
        step()
    except GradientError:  # of an operand that has none, such as the order of a function
        return None
    return step, _step(_work(theirs, reference), torch.tensor(values))


def _step(forward: Work, dy: Any) -> Work:
    def run() -> None:
        first: Any = flat_results(forward())[0]
        first.backward(dy)

    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if rows are slow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="operators or globs (default: all)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about this many seconds")
    parser.add_argument("--row-seconds", type=float, default=0.2, help="time to measure one row")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    end, rows, left_out, remaining = time.monotonic() + options.seconds, list[Row](), list[str](), 0
    for problem in problems_of(options.only):
        if time.monotonic() > end:
            remaining += 1
            continue
        try:
            rows.extend(measured(problem, options.row_seconds))
        except (MetaError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            left_out.append(f"{problem.sample!r} {problem.size}: {str(error).splitlines()[0][:90]}")
    _print(rows, left_out, remaining)
    if options.json:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


def _print(rows: Sequence[Row], left_out: Sequence[str], left: int) -> None:
    for row in sorted(rows, key=lambda r: -r.measured):
        print(f"{row.measured:8.2f} x {row.value:12.1f} us {row.reference or 0:12.1f} us  {row.name}")
    print(*(f"left out: {line}" for line in left_out), sep="\n")
    if rows:
        slow = sum(not row.holds for row in rows)
        middle = statistics.median(row.measured for row in rows)
        print(f"TOTAL rows={len(rows)} median={middle:.2f} over_{LIMIT}={slow} left_out={len(left_out)} not_run={left}")


if __name__ == "__main__":
    raise SystemExit(main())
