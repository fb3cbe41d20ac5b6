"""Cases in child processes. A process writes the number of its case to a file before it begins it, so that the
process around it can tell which case crashed it, or hangs."""

from __future__ import annotations

import json
import mmap
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 16 << 30
"""Bytes of address space of a process: TVM and torch map several GiB."""
_NUMBER = re.compile(r"-?\b\d[\d.e+-]*|\b(nan|inf)\b")
_CHUNK = 4000
"""Cases of one process that follow each other."""
_STATE = struct.Struct("<qq")
"""The case, and how many cases have ended before it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The failure of a case. kind: "wrong", "crash" or "hang"."""

    attack: str
    seed: int
    case: int
    kind: str
    text: str

    @property
    def command(self) -> str:
        """Repeats the case."""
        return f"python -m tests.attack {self.attack} --seed {self.seed} --case {self.case}"

    @property
    def problem(self) -> str:
        """A text that findings of one cause have in common: that of the exception, or the first line, without
        numbers."""
        lines = self.text.strip().split("\n")
        line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        return f"{self.kind}: {line if self.kind == 'crash' else _NUMBER.sub('#', line)}"[:160]


@dataclass(slots=True)
class Run:
    """The outcome of one attack. done: cases that ended. core_seconds: processor time of all processes."""

    attack: str
    seed: int
    done: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list[Finding])

    def save(self, folder: Path) -> None:
        """Write the run to a file of its own in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.attack}-{self.seed}-{time.time_ns()}.json"
        path.write_text(json.dumps(asdict(self)))


def saved_runs(folder: Path) -> list[Run]:
    """The runs that were saved in `folder`, sorted by attack and seed."""
    runs = [Run(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    for run in runs:
        run.findings = [Finding(**cast("dict[str, Any]", finding)) for finding in run.findings]
    return runs


def case_of(attack: str) -> Callable[[int, int], str]:
    """The function that runs a case of an attack."""
    return import_module(f"tests.attack.{attack}").case


def outcome(attack: str, seed: int, index: int) -> str:
    """The problem of a case, "" if there is none."""
    try:
        return case_of(attack)(seed, index)
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - whatever it is, it is what this looks for
        return traceback.format_exc(limit=-4)


def indices(number: int, processes: int, count: int) -> Iterator[int]:
    """The cases of one of several processes, in chunks, so that cases that follow each other find their kernels."""
    chunk = min(_CHUNK, -(-count // processes))
    for start in range(number * chunk, count, processes * chunk):
        yield from range(start, min(start + chunk, count))


def work(
    attack: str, seed: int, number: int, processes: int, count: int, skipped: int, until: float, state: Path
) -> None:
    """Run the cases of one process but the first `skipped`, until the time `until`; findings go to standard output."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with state.open("r+b") as file, mmap.mmap(file.fileno(), _STATE.size) as memory:
        done = 0
        for done, index in enumerate(islice(indices(number, processes, count), skipped, None)):
            memory[:] = _STATE.pack(index, done)
            if time.time() > until:
                return
            problem = outcome(attack, seed, index)
            if problem:
                print(json.dumps([index, problem]), flush=True)
            memory[:] = _STATE.pack(index, done + 1)


class _Worker:
    """The cases of one process, which is started again after a crash or a hang."""

    def __init__(self, run: Run, number: int, processes: int, count: int, until: float, limit: float) -> None:
        self.run, self.number, self.processes, self.count = run, number, processes, count
        self.until, self.limit, self.skipped = until, limit, 0
        self.folder = tempfile.TemporaryDirectory(prefix="meta-attack-")
        self.state, self.output = Path(self.folder.name, "state"), Path(self.folder.name, "output")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.state.write_bytes(_STATE.pack(-1, 0))
        self.seen, self.since = -1, time.time() + 60  # the imports take a while
        options = [self.number, self.processes, self.count, self.skipped, self.until, self.state]
        command = [sys.executable, "-m", "tests.attack.worker", self.run.attack, str(self.run.seed), *map(str, options)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    def poll(self) -> bool:
        """Whether the process, started again if it failed, still runs."""
        process = self.process
        assert process is not None
        index, done = _STATE.unpack(self.state.read_bytes())
        if index != self.seen:
            self.seen, self.since = index, time.time()
        code = process.poll()
        if code is None and time.time() - self.since < self.limit:
            return True
        if code is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.end(
                done + 1, Finding(self.run.attack, self.run.seed, index, "hang", f"no end after {self.limit:.0f} s")
            )
        elif code:
            text = f"exit status {code}: {self.last_lines()}"
            self.end(done + 1, Finding(self.run.attack, self.run.seed, index, "crash", text))
        else:
            self.end(done)
        if code != 0 and time.time() < self.until:
            self.start()
            return True
        self.folder.cleanup()
        return False

    def end(self, done: int, finding: Finding | None = None) -> None:
        """Collect the findings of the process. finding: the failure that ended it."""
        run = self.run
        run.done += done
        self.skipped += done
        for line in self.output.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                answer: Any = json.loads(line)
                if isinstance(answer, list):
                    case, problem = cast("tuple[int, str]", answer)
                    run.findings.append(Finding(run.attack, run.seed, case, "wrong", problem))
        if finding is not None:
            run.findings.append(finding)

    def last_lines(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-8:])[-2000:]


def attack(name: str, seed: int, count: int, seconds: float, processes: int = 1, limit: float = 120.0) -> Run:
    """`count` cases of an attack, or as many as end within `seconds`, in `processes` processes.

    limit: seconds that one case may take."""
    run = Run(name, seed)
    start, used = time.time(), _core_seconds()
    workers = [_Worker(run, i, processes, count, start + seconds, limit) for i in range(min(processes, count))]
    while workers:
        workers = [worker for worker in workers if worker.poll()]
        time.sleep(0.05)
    run.seconds, run.core_seconds = time.time() - start, _core_seconds() - used
    return run


def _core_seconds() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(runs: list[Run]) -> Iterator[str]:
    """A line for each attack, and below it one case of each distinct problem, with the number of its findings."""
    for name in dict.fromkeys(run.attack for run in runs):
        of = [run for run in runs if run.attack == name]
        by_problem: dict[str, list[Finding]] = {}
        for finding in (finding for run in of for finding in run.findings):
            by_problem.setdefault(finding.problem, []).append(finding)
        done, cost = sum(run.done for run in of), sum(run.core_seconds for run in of)
        seeds = ",".join(dict.fromkeys(str(run.seed) for run in of))
        yield (
            f"{name:<12} seeds {seeds:<9} {done:>9} cases {sum(run.seconds for run in of):7.0f} s {cost:8.0f} core-s"
            f" ({1e3 * cost / max(done, 1):.2f} ms a case)"
            f" {sum(map(len, by_problem.values())):>4} findings, {len(by_problem)} distinct"
        )
        for problem, findings in sorted(by_problem.items(), key=lambda item: -len(item[1])):
            yield f"  {len(findings)} x {problem}"
            yield f"      {findings[0].command}"


def texts(runs: list[Run]) -> Iterator[str]:
    """The whole text of one finding of each distinct problem."""
    by_problem = {finding.problem: finding for run in runs for finding in run.findings}
    for finding in by_problem.values():
        yield f"{finding.kind}: {finding.command}\n{finding.text}"


def environment() -> None:
    """One thread a process."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ.setdefault(name, "1")
