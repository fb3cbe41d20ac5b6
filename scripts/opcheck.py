"""Run `meta.testing.opcheck` on every operator of the package: `python -m scripts.opcheck [--device cuda] [NAME ...]`.

The samples are the rows of tests/python/op/samples. Prints each failed check with its sample, and the totals; the exit
status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from meta.errors import ArgumentError
from meta.op.registry import get
from meta.testing import OpCheckReport, Sample, opcheck
from tests.python.op.samples import samples


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.opcheck", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators; all of them by default")
    parser.add_argument("--device", default="cpu", help="where the checks run")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th operator, beginning with the I-th")
    parser.add_argument("--first", action="store_true", help="the first sample of each operator only")
    options = parser.parse_args(argv)
    rows = _rows(options.names, options.first)
    names = _part(sorted(rows), options.part)
    start, checks, failures = time.perf_counter(), 0, 0
    for name in names:
        report = opcheck(name, *rows[name], device=options.device, raise_on_failure=False)
        checks += len(report.findings) - len(report.skipped)
        failures += len(report.failures)
        if report.failures:
            print(_text(report), flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(names)} operators on {options.device}: {failures} of {checks} checks failed, {seconds:.0f} s")
    return 1 if failures else 0


def _rows(names: Sequence[str], first: bool) -> dict[str, list[Sample]]:
    """The samples by operator. Raises ArgumentError for an operator without any."""
    rows: dict[str, list[Sample]] = {}
    for row in samples():
        rows.setdefault(row.op, []).append(row)
    expected = [get(name).name for name in names] or list(rows)
    missing = [name for name in expected if name not in rows]
    if missing:
        raise ArgumentError("opcheck", f"{missing[0]} has no samples", "operators of the package")
    return {name: rows[name][: 1 if first else None] for name in expected}


def _part(names: Sequence[str], part: str) -> Sequence[str]:
    """The names of a part "I/N". Raises ArgumentError for another text."""
    index, _, count = part.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ArgumentError("opcheck", f"part is '{part}'", "I/N with I from 1 to N")
    return names[int(index) - 1 :: int(count)]


def _text(report: OpCheckReport) -> str:
    """The failed checks, each with its sample."""
    lines = [f"{report.op}: {report.summary}"]
    for finding in report.failures:
        lines.append(f"  {finding}")
        lines += [f"    of {report.samples[finding.sample]}"] if finding.sample is not None else []
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
