"""`python -m benchmarks.alternate OLD [NEW] [--suite bench] [--rounds 5] [--only PATTERN]`: which rows became slower.

OLD and NEW are commits, or folders with the sources of one. Each runs its own benchmarks in new processes that
alternate, on one core of a CPU or one GPU. A row is slower if the median of new / old over the rounds is at least 1.05
and above the ratio of the slowest to the fastest round of OLD. CPU rows except `startup` use processor
time, so other processes of the machine count little.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ops_page import MODEL

SLOWER = 1.05
"""Median ratio of the times from which on a row is slower; its reciprocal for faster rows."""
FILE = "FILE"
"""Among the arguments of a command: the file for its rows."""
RESULT = "RESULT "
"""Starts the line with the result of a job of benchmarks.train."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"), "1")
_BY_PROCESSOR = """
import runpy, sys, time
time.perf_counter = time.process_time
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module whose clock is the time of the processor."""
Times = dict[str, float]
"""Name of a row -> its time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A command, `python -m` and these arguments, that every commit has. read: the rows, from what the command printed
    and its file.  by_processor: whether the module is to measure the time of the processor.  cold: whether each run
    starts without kernels on disk.  takes_pattern: whether it can be told which rows are wanted."""

    arguments: tuple[str, ...]
    read: Callable[[str, Path], Times]
    by_processor: bool = False
    cold: bool = False
    takes_pattern: bool = False


def _rows(_: str, file: Path) -> Times:
    """Rows of `python -m benchmarks` and `python -m benchmarks.cuda`."""
    content: Any = json.loads(file.read_text())
    if "rows" in content:
        content = content["rows"]
    return {row["name"]: row["value"] for row in content}


def _operators(_: str, file: Path) -> Times:
    """Rows of `python -m benchmarks.ops`."""
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return {f"{row[_name_of(row)]} {row['size']} {row['direction']}": row["ours"] for row in rows}


def _name_of(row: Mapping[str, Any]) -> str:
    """The entry that tells rows of a size apart: operators have several calls with the shapes of models."""
    return "call" if row["size"] == MODEL else "op"


def _step(title: str, output: str, _: Path) -> Times:
    """Rows of a job of `python -m benchmarks.train`. Raises ValueError for one that failed."""
    line = next((line for line in output.splitlines() if line.startswith(RESULT)), RESULT + "{}")
    result: dict[str, Any] = json.loads(line.removeprefix(RESULT)).get("meta", {})
    if "ms" not in result:
        raise ValueError(str(result.get("error", "it printed no result")))
    return {f"{title} step": result["ms"], f"{title} first step": result["first"]}


def _group(module: str, name: str, by_processor: bool = False) -> Part:
    return Part((module, "--only", name, "--json", FILE), _rows, by_processor)


def _network(name: str, device: str, half: bool = False) -> Part:
    job = {"what": "step", "network": name, "device": device, "half": half, "seconds": 3.0, "contenders": ["meta"]}
    title = f"{name} bfloat16" if half else name
    return Part(("benchmarks.train", "--job", json.dumps(job)), partial(_step, title), device == "cpu", cold=True)


GPU = "cuda"
SUITES: Mapping[str, Mapping[str, Part]] = {
    "bench": {name: _group("benchmarks", name, name != "startup") for name in ("eager", "vm", "startup")},
    "ops": {
        "operators": Part(("benchmarks.ops", "--row-seconds", "0.1", "--results", FILE), _operators, takes_pattern=True)
    },
    "train": {name: _network(name, "cpu") for name in ("mlp", "resnet18", "bert-mini")},
    GPU: {name: _group("benchmarks.cuda", name) for name in ("bandwidth", "host", "random", "sorts", "steps")},
    f"{GPU}-train": {
        f"{name} {'bfloat16' if half else 'float32'}": _network(name, GPU, half)
        for name in ("resnet50", "bert-base")
        for half in (False, True)
    },
}
"""Suite -> its parts. Suites whose names start with "cuda" run on a GPU."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The times of a row in each round."""

    name: str
    old: list[float] = field(default_factory=list[float])
    new: list[float] = field(default_factory=list[float])

    @property
    def ratio(self) -> float:
        """The median of new / old."""
        return statistics.median(n / o for n, o in zip(self.new, self.old, strict=True))

    @property
    def spread(self) -> float:
        """The slowest round of the old commit, relative to its fastest."""
        return max(self.old) / min(self.old)

    @property
    def verdict(self) -> str:
        """ "SLOWER", "faster", or "" within the noise."""
        if self.ratio >= SLOWER and self.ratio > self.spread:
            return "SLOWER"
        return "faster" if self.ratio <= 1 / SLOWER and 1 / self.ratio > self.spread else ""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "old": self.old, "new": self.new, "ratio": self.ratio, "spread": self.spread,
                "verdict": self.verdict}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """The sources of a commit, and a folder for its compiled kernels. kept: whether cold parts find them as well."""

    title: str
    sources: Path
    cache: Path
    kept: bool = False

    def run(self, part: Part, pattern: str) -> Times:
        """The rows of a part, in a new process. Raises ValueError, with the end of its output, if it fails."""
        with tempfile.TemporaryDirectory(prefix="meta-alternate-") as name:
            folder = Path(name)
            file = folder / "rows.json"
            arguments = [str(file) if argument == FILE else argument for argument in part.arguments]
            arguments += ["--only", pattern] if part.takes_pattern and pattern else []
            cache = folder / "kernels" if part.cold and not self.kept else self.cache
            path = os.pathsep.join(filter(None, (str(self.sources), os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, **THREADS, "META_PROGRESS": "0", "META_CACHE_DIR": str(cache),
                           "PYTHONPATH": path}  # fmt: skip
            command = [sys.executable, *(("-c", _BY_PROCESSOR) if part.by_processor else ("-m",)), *arguments]
            process = subprocess.run(command, cwd=self.sources, env=environment, capture_output=True, text=True)
            try:
                return part.read(process.stdout, file)
            except (OSError, ValueError, KeyError) as error:
                problem = f"{error}; it ended with {process.returncode}: {process.stderr.strip()[-400:]}"
                raise ValueError(problem) from error


@contextmanager
def open_tree(title: str, source: str, kept: Path | None) -> Generator[Tree, None, None]:
    """The sources of a folder or commit, with kernels in a new folder or those kept from before. Raises ValueError for
    another source."""
    with tempfile.TemporaryDirectory(prefix="meta-alternate-") as name:
        folder, cache = Path(name) / "sources", (Path(name) if kept is None else kept.resolve() / title) / "kernels"
        sources = Path(source).resolve() if Path(source).is_dir() else folder
        if sources is folder:
            archive = subprocess.run(["git", "archive", "--format=tar", source], capture_output=True)
            if archive.returncode:
                raise ValueError(f"{source!r} is neither a folder nor a commit: {archive.stderr.decode().strip()}")
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
                tar.extractall(folder, filter="data")
        if not (sources / "benchmarks").is_dir():
            raise ValueError(f"{source!r} has no folder benchmarks")
        yield Tree(title, sources, cache, kept is not None)


def alternate(
    old: Tree, new: Tree, parts: Mapping[str, Part], rounds: int, pattern: str, seconds: float
) -> list[Comparison]:
    """Run the parts of both trees in turn; no round starts after so many seconds. Parts that fail or have no row of the
    pattern in the first round, and rows that only one tree has, are left out; the first and the last are printed."""
    begin = time.monotonic()
    rows: dict[str, Comparison] = {}
    remaining = dict(parts)
    for number in range(1, rounds + 1):
        if time.monotonic() - begin > seconds:
            print(f"{number - 1} rounds took {seconds:.0f} s", flush=True)
            break
        for name, part in list(remaining.items()):
            start = time.monotonic()
            try:
                times = [_matching(tree.run(part, pattern), pattern) for tree in (old, new)]
            except ValueError as error:
                print(f"{name} is left out: {error}", flush=True)
                del remaining[name]
                continue
            both = times[0].keys() & times[1].keys()
            if number == 1:
                for row in sorted((times[0].keys() | times[1].keys()) - both):
                    print(f"{row} is in {'OLD' if row in times[0] else 'NEW'} only", flush=True)
            if not both:
                del remaining[name]
                continue
            for row in filter(both.__contains__, times[0]):
                comparison = rows.setdefault(row, Comparison(row))
                comparison.old.append(times[0][row])
                comparison.new.append(times[1][row])
            print(f"round {number} of {rounds}: {name}, {time.monotonic() - start:.0f} s", flush=True)
    return list(rows.values())


def _matching(times: Times, pattern: str) -> Times:
    return {row: value for row, value in times.items() if fnmatchcase(row, f"*{pattern}*")}


def _print_table(rows: Sequence[Comparison]) -> None:
    print(
        "\n| row | old, median | new | new / old, median | slowest / fastest of old | |\n| --- |"
        + " ---: |" * 4
        + " --- |"
    )
    for row in rows:
        old, new = (f"{statistics.median(times):.4g}" for times in (row.old, row.new))
        print(f"| {row.name} | {old} | {new} | {row.ratio:.3f} | {row.spread:.3f} | {row.verdict} |")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alternate", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="a commit or a folder")
    parser.add_argument("new", metavar="NEW", nargs="?", default=".", help="a commit or a folder (default: this one)")
    parser.add_argument("--suite", choices=SUITES, default="bench", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each commit (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose names contain this text or glob")
    parser.add_argument("--part", action="append", metavar="PART",
                        help="run this part of the suite; may be repeated: " + "; ".join(
                            f"{suite}: {', '.join(parts)}" for suite, parts in SUITES.items()))  # fmt: skip
    parser.add_argument("--core", type=int, help="the core to run on (default: the last that this process may use)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no round after this time")
    parser.add_argument("--kernels", type=Path, metavar="FOLDER",
                        help="keep compiled kernels here: steps start with those of an earlier run")  # fmt: skip
    parser.add_argument("--json", type=Path, help="output file with the times of all rounds")
    return parser


def _one_device(suite: str, core: int | None) -> None:
    """Keep this process and those that it starts on one core or on one GPU."""
    if suite.startswith(GPU):
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    elif hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if core is None else core})


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if a row is slower, 2 if nothing could be measured."""
    parser = _parser()
    options = parser.parse_args(argv)
    parts = SUITES[options.suite]
    unknown = sorted(set(options.part or ()) - set(parts))
    if unknown or options.rounds < 1:
        parser.error(f"there is no part {', '.join(unknown)}" if unknown else "expected one round or more")
    parts = {name: part for name, part in parts.items() if name in (options.part or parts)}
    _one_device(options.suite, options.core)
    try:
        with (
            open_tree("OLD", options.old, options.kernels) as old,
            open_tree("NEW", options.new, options.kernels) as new,
        ):
            rows = alternate(old, new, parts, options.rounds, options.only, options.seconds)
    except ValueError as error:
        parser.error(str(error))
    _print_table(rows)
    if options.json is not None:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    slower = sum(row.verdict == "SLOWER" for row in rows)
    print(f"\n{len(rows)} rows, {slower} slower, {sum(row.verdict == 'faster' for row in rows)} faster")
    return 1 if slower else 0 if rows else 2


if __name__ == "__main__":
    raise SystemExit(main())
