"""Check the operators against torch's samples: `python -m tests.python.conformance [names ...]`.

Entries run in child processes of a few dozen: one that kills its process is reported, and the others go on."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from tests.python.conformance import backward_operators
from tests.python.conformance.checks import Result, check_entry
from tests.python.conformance.opinfos import database
from tests.python.conformance.report import Report, decoded, encoded

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip
GRADIENTS = ("float32", "float64")
CHUNK = 40
"""Entries of one process."""


def main() -> int:
    options = _parser().parse_args()
    names = [n for n in database() if not options.names or any(fnmatchcase(n, p) for p in options.names)]
    if options.child:
        _check(names, options)
        return 0
    report = Report()
    for result in _children(names, options):
        report.results.append(result)
        counts = result.total()
        failed = next((n for n in result.notes if " failed:" in n), "")
        print(
            f"{result.entry:<44}{counts['passed']:>6} passed {counts['failed']:>5} failed  {failed[:100]}", flush=True
        )
    if not options.names or options.backward_operators:
        report.backward, report.backward_notes = backward_operators.check_all(options.samples or 20)
    print(report.total())
    if options.page:
        command = "make conformance" if not options.names else "python -m tests.python.conformance"
        Path(options.page).write_text(report.page(command, torch.__version__.split("+")[0]))
    return 1 if any(r.total()["failed"] for r in report.results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="entries or globs (default: all)")
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--gradients", nargs="*", default=GRADIENTS, help="dtypes whose gradients are checked")
    parser.add_argument("--samples", type=int, default=8, help="samples an entry and dtype, 0: all")
    parser.add_argument("--compiled", type=int, default=2, help="how many of them are compiled too")
    parser.add_argument("--no-strided", action="store_true", help="leave out non-contiguous inputs")
    parser.add_argument("--backward-operators", action="store_true", help="with names: check those by themselves too")
    parser.add_argument("--page", default="", help="write the report here")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser


def _check(names: Sequence[str], options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtypes, differentiable = ([getattr(torch, name) for name in group] for group in (options.dtypes, options.gradients))
    with open(options.child, "w", buffering=1) as log:
        for name in names:
            result = check_entry(database()[name], dtypes, differentiable, options.samples, compiled=options.compiled,
                                 strided=not options.no_strided)  # fmt: skip
            log.write(json.dumps(encoded(result)) + "\n")


def _children(names: Sequence[str], options: argparse.Namespace) -> Iterator[Result]:
    """The results of all entries; those of a process that dies go on behind the entry that it died of."""
    left = list(names)
    while left:
        part = left[:CHUNK]
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
            flags = ["--no-strided"] if options.no_strided else []
            command = [sys.executable, "-m", "tests.python.conformance", *part, "--child", log.name, *flags,
                       "--dtypes", *options.dtypes, "--gradients", *options.gradients,
                       "--samples", str(options.samples), "--compiled", str(options.compiled)]  # fmt: skip
            code = subprocess.run(command, check=False).returncode
            done = [decoded(json.loads(line)) for line in log]
        yield from done
        left = left[len(done) :]
        if len(done) < len(part):
            crashed = Result(left.pop(0))
            crashed.add("forward", "eager", None, f"the process ended with code {code}")
            yield crashed


if __name__ == "__main__":
    sys.exit(main())
