"""Rows of `python -m benchmarks.ops`: their file of results, and the page with the table of all operators."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks.limits import processor_name

LIMIT = 1.5
"""Ratio above which a row is slow."""
MODEL = "model"
"""The size of calls with the shapes of models; an operator has several of them."""
COLUMNS = tuple((size, direction) for size in ("4", "large", MODEL) for direction in ("forward", "backward"))
"""Size and direction of the rows of an operator, as columns of the table."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds of one call in meta and in torch.

    size: "4", "large" or "model".  direction: "forward", or "backward" for both passes.
    call: the operator with its arguments.
    dialect: of the forward kernel, "" for views and for functions of several kernels.
    """

    op: str
    size: str
    direction: str
    call: str
    dialect: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    def __str__(self) -> str:
        times = f"{self.ratio:8.2f} x {self.ours:12.1f} us {self.theirs:12.1f} us"
        return f"{times}  {self.call} {self.size} {self.direction} {self.dialect}"


def add(path: Path, row: Measurement) -> None:
    """Append a row to a file of results."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read(path: Path) -> list[Measurement]:
    """The rows of a file of results, the last one of each operator, size and direction, and of each call of a model."""
    rows = (Measurement(**json.loads(line)) for line in path.read_text().splitlines())
    keys = (((row.op, row.size, row.direction, row.call if row.size == MODEL else ""), row) for row in rows)
    return list(dict(keys).values())


def median(runs: Sequence[Measurement]) -> Measurement:
    """The row of the median ratio among several runs."""
    return sorted(runs, key=lambda row: row.ratio)[len(runs) // 2]


def total(rows: Sequence[Measurement]) -> str:
    """One line: how many rows there are, their median ratio, and how many are slow."""
    ratios = [row.ratio for row in rows]
    slow = sum(ratio > LIMIT for ratio in ratios)
    return f"TOTAL rows={len(rows)} median={statistics.median(ratios):.2f} over_{LIMIT}={slow}"


def page(rows: Sequence[Measurement], version: str, torch_version: str) -> str:
    """The page."""
    operators = {row.op for row in rows}
    stamp = f"{processor_name()}, one thread, {date.today().isoformat()}, meta {version}, torch {torch_version}"
    sections = [
        "# Operators against torch",
        _INTRODUCTION.format(stamp=stamp, operators=len(operators)),
        "| rows | number | median ratio | above 1 | above 1.5 |\n| --- | ---: | ---: | ---: | ---: |\n"
        + "\n".join(_summaries(rows)),
        "## Rows above 1.5",
        _table(("call", "size", "pass", "meta, us", "torch, us", "ratio"), _slow(rows), numbers=3),
        *_reasons(rows),
        "## All operators",
        _COLUMNS_TEXT,
        _table(("operator", "dialect", *map(_title, COLUMNS)), _by_operator(rows), numbers=len(COLUMNS)),
    ]
    return "\n\n".join(sections) + "\n"


_INTRODUCTION = """\
`make bench-ops` measures the {operators} operators that have a kernel of TVM and a counterpart in torch, and writes
this page: {stamp}.

A ratio is the time of an eager call of meta, divided by the time of torch's call that computes the same: medians of
rounds in turn, processor time. Operands have sizes of 4, about a million elements (large), or the shapes of models that
benchmarks/ops_shapes.py has for each kind of operator. Functions that call several operators, such as `median`, are
measured on these only. Rows with backward are a forward and a backward pass with gradients of all operands. Dispatch
chooses the dialect, as in every call. Where torch returns a view of an operand, its time includes a copy, because
meta's results are compact."""

REASONS = {
    "device_copy": "the name of a device takes the general path of calls; with a `Device`, the call takes 1.5 us.",
    "igamma": "torch's kernel has errors of up to 8e-6 in float32, meta's of 6e-8.",
    "igammac": "torch's kernel has errors of up to 9e-6 in float32, meta's of 6e-8.",
    "pad": "the key by which a call finds its kernel has the nested widths, which takes 5 us.",
    "stack": "torch's gradients are views of the one that arrives; meta's have memory of their own.",
}
"""Operator -> why no dialect is faster where the operator has a slow row."""

_COLUMNS_TEXT = """\
Ratios, of the shapes of models the largest one; nothing where torch has no such call, or one of the libraries no
gradient."""


def _title(column: tuple[str, str]) -> str:
    size, direction = column
    return size if direction == "forward" else f"{size}, {direction}"


def _summaries(rows: Sequence[Measurement]) -> Iterable[str]:
    groups = [("all", list(rows))]
    for size, direction in COLUMNS:
        groups.append((f"{size}, {direction}", [r for r in rows if (r.size, r.direction) == (size, direction)]))
    for name, group in groups:
        ratios = [row.ratio for row in group]
        if ratios:
            above = [sum(ratio > bound for ratio in ratios) for bound in (1, LIMIT)]
            yield f"| {name} | {len(ratios)} | {statistics.median(ratios):.2f} | {above[0]} | {above[1]} |"


def _slow(rows: Sequence[Measurement]) -> Iterable[Sequence[str]]:
    for row in sorted(rows, key=lambda r: -r.ratio):
        if row.ratio > LIMIT:
            yield (f"`{row.call}`", row.size, row.direction, f"{row.ours:.1f}", f"{row.theirs:.1f}", f"{row.ratio:.2f}")


def _reasons(rows: Sequence[Measurement]) -> Iterable[str]:
    """A list of why dispatch does not avoid slow rows, of the operators that have some."""
    slow = {row.op for row in rows if row.ratio > LIMIT}
    lines = [f"- `{op}`: {reason}" for op, reason in sorted(REASONS.items()) if op in slow]
    if lines:
        yield "Why dispatch does not avoid them:\n\n" + "\n".join(lines)


def _by_operator(rows: Sequence[Measurement]) -> Iterable[Sequence[str]]:
    slowest = {(row.op, row.size, row.direction): row.ratio for row in sorted(rows, key=lambda row: row.ratio)}
    ratios = {key: f"{ratio:.2f}" for key, ratio in slowest.items()}
    dialects = {(row.op, row.size): row.dialect for row in rows}
    for op in sorted({row.op for row in rows}):
        used = dict.fromkeys(dialects.get((op, size), "") for size in ("4", "large", MODEL))
        cells = [ratios.get((op, *column), "") for column in COLUMNS]
        yield (f"`{op}`", ", ".join(filter(None, used)), *cells)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> str:
    """A table of Markdown whose last columns are numbers."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))
