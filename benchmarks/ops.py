"""`python -m benchmarks.ops [--only NAME ...] [--part I/N] [--results FILE] [--page FILE]`: every operator with a TVM
kernel against torch.

Each operator runs on sizes of 4, on large sizes, and on the shapes of models that benchmarks.ops_shapes has for its
kind, forward, and forward with backward where both libraries have a gradient: eager calls in one process on one thread,
with the dialect that dispatch chooses. The counterpart in torch is the reference of the operator's first sample in the
tests. Operators whose names end in `_dx` and the like are measured as the backward of their forward operators.
Functions that call several operators, such as `median`, run on the shapes of models. Times are of the processor, so
other processes of the machine are not counted. Rows are printed as they are measured, then the slow ones by ratio; a
run that is bounded by `--seconds` says how much is left. `--results` adds the rows to a file, and `--page` writes the
table of all rows of that file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import meta
from benchmarks import ops_page, ops_shapes
from benchmarks.dialects import enlarge
from benchmarks.ops_page import LIMIT, MODEL, Measurement
from benchmarks.problems import problems
from benchmarks.timing import Work, medians
from meta.dtype import is_inexact
from meta.errors import GradientError, MetaError
from meta.ir.type import flat_types
from meta.op.dispatch import implementations
from meta.op.registry import owner
from meta.testing.arrays import to_torch
from meta.testing.call import flat_results, is_array
from meta.testing.derivatives import is_differentiable
from meta.testing.dialects import accepting_implementations
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T, leaves
from meta.tree import leaves_of
from tests.python.op.samples import samples

LARGE = 1 << 20
"""Elements of the largest operand of a large call, about."""
_FEWEST_ROUNDS = 5
"""Rounds of a row whose calls take longer than the time for it."""
_BACKWARD = ("_dx", "_dw", "_dwb", "_dxb", "_dxw", "_dxwb")


@dataclass(frozen=True, slots=True)
class Problem:
    """A call of an operator, or of a function that calls operators, on sizes of a class: "4", "large" or "model"."""

    sample: Sample
    size: str

    @property
    def is_function(self) -> bool:
        return owner(self.sample.op) is None

    def arguments(self, convert: Callable[[Any], Any]) -> Arguments:
        """The arguments, with `convert(NumPy array)` for each tensor."""
        seed = f"{self.sample.op}/{self.sample.id}"
        return Arguments(*self.sample.map(lambda t, path: convert(t.values("float32", f"{seed}/{path}"))))


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call, positional and by name, with the arrays of a library."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def arrays(self) -> list[Any]:
        return [leaf for leaf in leaves_of((*self.args, *self.kwargs.values())) if is_array(leaf)]

    def work(self, function: Callable[..., Any]) -> Work:
        return partial(function, *self.args, **self.kwargs)


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
        for sample in ops_shapes.model_calls(row):
            yield Problem(sample, MODEL)
    for sample in ops_shapes.functions():
        if _is_wanted(sample.op, only):
            yield Problem(sample, MODEL)


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
    """The sample with sizes of `side`, or less where its result would be large, as that of an embedding of so many
    positions; the sample itself if the operator refuses those."""
    with suppress(MetaError, ValueError):
        while (result := (resized := _resized(row, side)).result_type("float32")) is not None:
            if max((prod(t.shape) for t in flat_types((result,)) if t.is_static), default=0) <= 4 * LARGE:
                return resized
            side //= 2
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


def measured(problem: Problem, seconds: float) -> Iterator[Measurement]:
    """The rows of a call: forward, and with backward where both libraries differentiate the first result."""
    reference = problem.sample.ref
    assert reference is not None
    function = getattr(meta if problem.is_function else meta.ops, problem.sample.op)
    ours, theirs = problem.arguments(meta.array), problem.arguments(to_torch)
    _require_same(ours.work(function), theirs.work(reference))
    reference = _compact(theirs, reference)
    yield _row(problem, "forward", (ours.work(function), theirs.work(reference)), seconds)
    if problem.is_function or is_differentiable(problem.sample):
        steps = _steps(problem, function, reference)
        if steps:
            yield _row(problem, "backward", steps, seconds)


def _row(problem: Problem, direction: str, works: tuple[Work, Work], seconds: float) -> Measurement:
    times = medians(*works, seconds=seconds, fewest=_FEWEST_ROUNDS, clock=time.process_time)
    ours, theirs = (t * 1e6 for t in times)
    sample = problem.sample
    return Measurement(sample.op, problem.size, direction, repr(sample), _dialect(problem), ours, theirs)


def _dialect(problem: Problem) -> str:
    """The dialect of the kernel that dispatch chooses, "" for functions of several kernels."""
    if problem.is_function:
        return ""
    call = make_call(problem.sample, "float32").to_meta()
    return next((i.dialect.name for i in accepting_implementations(call)), "")


def _require_same(ours: Work, theirs: Work) -> None:
    """Raise ValueError where the reference does not compute what the operator does, tensors of the same shapes."""
    for a, b in zip(flat_results(ours()), flat_results(theirs()), strict=False):
        if not isinstance(b, torch.Tensor) or tuple(a.shape) != tuple(b.shape):
            raise ValueError("the reference is not a function of torch with the same result")


def _compact(theirs: Arguments, reference: Any) -> Any:
    """`reference`, followed by a copy of results that are views of operands: those of meta are compact arrays."""
    results = [t for t in flat_results(theirs.work(reference)()) if isinstance(t, torch.Tensor)]
    memory = {x.untyped_storage().data_ptr() for x in theirs.arrays()}
    if all(t.is_contiguous() and t.untyped_storage().data_ptr() not in memory for t in results):
        return reference

    def copied(*args: Any, **kwargs: Any) -> Any:
        result = reference(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            return result.clone(memory_format=torch.contiguous_format)
        return tuple([t.clone(memory_format=torch.contiguous_format) for t in result])

    return copied


def _steps(problem: Problem, function: Any, reference: Any) -> tuple[Work, Work] | None:
    """A forward call with the gradients of all floating operands in both libraries; None if torch has none."""
    ours, theirs = problem.arguments(meta.array), problem.arguments(to_torch)
    for x in ours.arrays():
        x.requires_grad = x.dtype == "float32"
    for t in theirs.arrays():
        t.requires_grad_(t.is_floating_point())
    forward, expected_forward = ours.work(function), theirs.work(reference)
    y, expected = flat_results(forward())[0], flat_results(expected_forward())[0]
    if not (y.requires_grad and expected.requires_grad and expected.is_floating_point()):
        return None
    values = np.ones(y.shape, np.float32)
    step = _step(forward, meta.array(values), ours.arrays())
    try:
        step()
    except GradientError:  # of an operand that has none, such as the order of a function
        return None
    return step, _step(expected_forward, torch.tensor(values), theirs.arrays())


def _step(forward: Work, dy: Any, operands: Sequence[Any]) -> Work:
    """Forward and backward from no gradients, as a training step: the gradients of the step before are not added."""

    def run() -> None:
        for x in operands:
            x.grad = None
        first: Any = flat_results(forward())[0]
        first.backward(dy)

    return run


def _part(text: str) -> tuple[int, int]:
    first, parts = map(int, text.split("/"))
    return first, parts


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if rows are slow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="operators or globs (default: all)")
    parser.add_argument("--part", type=_part, default=(1, 1), help="I/N: every N-th call, from the I-th on")
    parser.add_argument("--runs", type=int, default=1, help="measure each row so often; the median ratio counts")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about this many seconds")
    parser.add_argument("--row-seconds", type=float, default=0.2, help="time to measure one row")
    parser.add_argument("--results", type=Path, help="add the rows to this file, lines of JSON")
    parser.add_argument("--page", type=Path, help="write all rows of the results to this page")
    options = parser.parse_args(argv)
    if options.page and not options.results:
        parser.error("--page needs --results")
    torch.set_num_threads(1)
    end, rows, left_out, remaining = time.monotonic() + options.seconds, list[Measurement](), 0, 0
    first, parts = options.part
    for problem in islice(problems_of(options.only), first - 1, None, parts):
        if time.monotonic() > end:
            remaining += 1
            continue
        try:
            runs = [measured(problem, options.row_seconds) for _ in range(options.runs)]
            for several in zip(*runs, strict=True):
                row = ops_page.median(several)
                print(row, flush=True)
                rows.append(row)
                if options.results:
                    options.results.parent.mkdir(parents=True, exist_ok=True)
                    ops_page.add(options.results, row)
        except (MetaError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            left_out += 1
            print(f"left out: {problem.sample!r} {problem.size}: {str(error).splitlines()[0][:90]}", flush=True)
    for row in sorted(rows, key=lambda r: -r.ratio):
        if row.ratio > LIMIT:
            print(f"slow {row}")
    if rows:
        print(f"{ops_page.total(rows)} left_out={left_out} not_run={remaining}")
    if options.page and options.results.exists():
        options.page.write_text(ops_page.page(ops_page.read(options.results), meta.__version__, torch.__version__))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
