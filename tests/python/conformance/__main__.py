"""Check the operators against torch's samples: `python -m tests.python.conformance [names ...]`.

Entries run in child processes of a dozen: one that kills its process is reported, and the others go on. Results are
kept by entry: a run that was stopped goes on where it was, until the code changes."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from tests.python.conformance import backward_operators, page
from tests.python.conformance.checks import Result, check_entry
from tests.python.conformance.opinfos import database
from tests.python.conformance.report import Report
from tests.python.conformance.results import Results, merged

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128",
]  # fmt: skip
GRADIENTS = ["float32", "float64"]
CHUNK = 12
"""Entries of one process, at most."""


def main(argv: Sequence[str] | None = None) -> int:
    """Check entries and print their total. Returns 1 if a sample failed, or an entry is left."""
    options = _parser().parse_args(argv)
    entries = [n for n in database() if not options.names or any(fnmatchcase(n, p) for p in options.names)]
    shard, shards = map(int, options.shard.split("/"))
    share = entries[shard::shards]
    results = Results(Path(options.results), _settings(options), options.older)
    if options.child:
        _check(share, options, results)
        return 0
    left = _left(share, options, results)
    print(f"{len(left)} of {len(share)} entries to check; results are in {options.results}", flush=True)
    _run(left, options, results)
    measured = results.read()
    report = Report([merged(n, [measured[n, d] for d in options.dtypes if (n, d) in measured]) for n in entries])
    if ((not options.names and shards == 1) or options.backward_operators) and not _left(entries, options, results):
        path = Path(options.results) / "backward_operators.jsonl"
        report.backward = backward_operators.check_all(options.samples or 20, path)
    for line in report.failures():
        print(line)
    missing = _left(entries, options, results)
    print(f"{len(entries) - len(missing)} of {len(entries)} entries are checked\n{report.total()}")
    if options.page:
        page.update(Path(options.results).glob("*.jsonl"), target=Path(options.page))
    return 1 if report.failures() or missing else 0


def _left(entries: Sequence[str], options: argparse.Namespace, results: Results) -> list[str]:
    """The entries of which a dtype has no result."""
    measured = results.read()
    return [n for n in entries if any((n, d) not in measured for d in options.dtypes)]


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options that the results of a dtype depend on."""
    return {name: getattr(options, name) for name in ("gradients", "samples", "compiled", "no_strided")}


def _flags(options: argparse.Namespace) -> list[str]:
    """Dtypes and settings as arguments of a command, but for defaults."""
    flags: list[str] = []
    for name, value in {"dtypes": options.dtypes, **_settings(options)}.items():
        if value != _parser().get_default(name):
            words = list(map(str, value)) if isinstance(value, (list, tuple)) else [str(value)]
            flags += [f"--{name.replace('_', '-')}", *(words if value is not True else [])]
    return flags


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="entries or globs (default: all)")
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--gradients", nargs="*", default=GRADIENTS, help="dtypes whose gradients are checked")
    parser.add_argument("--samples", type=int, default=8, help="samples an entry and dtype, 0: all")
    parser.add_argument("--compiled", type=int, default=2, help="how many of them are compiled too")
    parser.add_argument("--no-strided", action="store_true", help="leave out non-contiguous inputs")
    parser.add_argument("--backward-operators", action="store_true", help="with names: check those by themselves too")
    parser.add_argument("--page", default="", help="add the results to measured.tsv, and write the page here")
    parser.add_argument("--results", default="build/conformance", help="folder of results; those in it are kept")
    parser.add_argument("--older", action="store_true", help="count results of other versions of the code, too")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th entry only, from the i-th (from 0) on")
    parser.add_argument("--processes", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; another run goes on")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _check(entries: Sequence[str], options: argparse.Namespace, results: Results) -> None:
    """Check what is left of entries, in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    measured = results.read()
    gradients = [getattr(torch, name) for name in options.gradients]
    for name in entries:
        errors = not any(entry == name and r.total("errors") for (entry, _), r in measured.items())
        for dtype in [d for d in options.dtypes if (name, d) not in measured]:
            result = check_entry(database()[name], [getattr(torch, dtype)], gradients, options.samples,
                                 compiled=options.compiled, strided=not options.no_strided, errors=errors)  # fmt: skip
            errors = errors and not result.total("errors")
            results.add(dtype, result)
            counts = result.total()
            failed = next((n for n in result.notes if " failed:" in n), "")
            print(f"{name:<44}{dtype:<11}{counts['passed']:>6} passed {counts['failed']:>5} failed  {failed[:100]}",
                  flush=True)  # fmt: skip


def _run(entries: Sequence[str], options: argparse.Namespace, results: Results) -> None:
    """Check entries in child processes, `--processes` at a time, until `--seconds` have passed."""
    end = time.monotonic() + options.seconds
    size = max(1, min(CHUNK, len(entries) // (4 * options.processes)))
    parts = [list(entries[i : i + size]) for i in range(0, len(entries), size)]
    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(lambda part: _children(part, options, results, end), parts))


def _children(left: list[str], options: argparse.Namespace, results: Results, end: float) -> None:
    """Check entries in a child process; where it dies, go on in another one behind the entry that it died of."""
    while left and time.monotonic() < end:
        command = [sys.executable, "-m", "tests.python.conformance", *left, "--child", "--results", options.results,
                   *_flags(options), *(["--older"] if options.older else [])]  # fmt: skip
        try:
            code = subprocess.run(command, check=False, timeout=min(end - time.monotonic(), 1e6)).returncode
        except subprocess.TimeoutExpired:
            return
        left = _left(left, options, results)
        if code and left:
            measured = results.read()
            dtype = next(d for d in options.dtypes if (left[0], d) not in measured)
            crashed = Result(left[0])
            crashed.add("forward", "eager", getattr(torch, dtype), f"the process ended with code {code}")
            results.add(dtype, crashed)


if __name__ == "__main__":
    sys.exit(main())
