"""Compiles random programs: results, arguments and state have to equal eager code and the interpreter.

    python -m scripts.fuzz_programs 10000 --workers 2       programs 0 to 9999 of seed 0
    python -m scripts.fuzz_programs 1 --seed 3 --only 17    one of them, with its text
    python -m scripts.fuzz_programs --file program.py       a program that --failures wrote

Programs update state and arguments, in and beside branches and loops, with operators of several results, gradients,
optimizers and training steps; each is called three times. `scripts/random_programs.py` writes them,
`scripts/program_judge.py` compares. Some are compiled for a memory budget, without fusion, or for symbolic sizes. A
finding is shrunk: its text is a file whose `make()` gives the function. Processes that crash or hang are findings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from scripts import fuzzing
from scripts.program_judge import Finding, judge
from scripts.program_text import Program, Statement, names_in, shape_text
from scripts.random_programs import random_program

ROOT: Final = Path(__file__).resolve().parents[1]
_BATCH: Final = 100
"""Programs of one process."""
_ATTEMPTS: Final = 160
"""Programs that are tried to shrink one."""

# --- shrinking -------------------------------------------------------------------------------------------------------


def shrink(program: Program, finding: Finding) -> tuple[Program, Finding]:
    """A smaller program with a finding of the same way and kind."""
    seen, changed = {program.source()}, True
    while changed:
        changed = False
        for smaller in _smaller(program):
            source = smaller.source()
            if source in seen:
                continue
            if len(seen) > _ATTEMPTS:
                return program, finding
            seen.add(source)
            print(json.dumps({"tried": len(seen)}), flush=True)
            same = [f for f in _judged(source, (finding.way,)) if f.kind == finding.kind]
            if same:
                program, finding, changed = smaller, same[0], True
                break
    return program, finding


def _judged(source: str, ways: Sequence[str]) -> Sequence[Finding]:
    try:
        return judge(source, ways, every=False).findings
    except Exception:  # noqa: BLE001 - what shrinking left cannot run
        return ()


def _smaller(program: Program) -> Iterator[Program]:
    """Smaller programs, the smallest first."""
    for length in (8, 4, 2, 1):
        for start in range(len(program.body) - length, -1, -1 if length == 1 else -length):
            yield _without(program, start, start + length)
    for i in range(len(program.results)):
        if len(program.results) > 1:
            yield replace(program, results=program.results[:i] + program.results[i + 1 :]).used()
    if len(program.sizes) > 1:
        yield replace(program, sizes=program.sizes[:-1])
    if program.options:
        yield replace(program, options=())
    for level in program.budgets if len(program.budgets) > 1 else ():
        yield replace(program, budgets=(level,))
    for i, statement in enumerate(program.body):
        for lines in _simpler(statement.lines):
            body = (*program.body[:i], replace(statement, lines=lines), *program.body[i + 1 :])
            yield replace(program, body=body).used()


def _simpler(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The lines with a copy of a name in the place of a term or a call that reads it; many of them cannot run. Copies
    share no memory, so that eager code still means what a trace does."""
    for i, line in enumerate(lines):
        for match in re.finditer(r"(?:meta\.\w+)?\(", line):
            depth, stop = 0, match.end() - 1
            while stop < len(line):
                depth += {"(": 1, ")": -1}.get(line[stop], 0)
                stop += 1
                if depth == 0:
                    break
            term = line[match.start() : stop]
            for name in sorted(names_in(term)):
                if (copy := f"({name} * 1.0)") != term:
                    yield (*lines[:i], line[: match.start()] + copy + line[stop:], *lines[i + 1 :])


def _without(program: Program, start: int, stop: int) -> Program:
    """The program without some of its statements; names that are read later get other values."""
    later = "\n".join([line for s in program.body[stop:] for line in s.lines] + list(program.results))
    kept = list(program.body[:start])
    for bound in (b for s in program.body[start:stop] for b in s.binds if re.search(rf"\b{b.name}\b", later)):
        like = [a.name for a in program.arguments if (a.shape, a.dtype) == (bound.shape, bound.dtype)]
        value = f"{like[-1]} * 0.5" if like else f"meta.full({shape_text(bound.shape)}, 0.5, dtype={bound.dtype!r})"
        kept.append(Statement((f"{bound.name} = {value}",), (bound,)))
    return replace(program, body=(*kept, *program.body[stop:])).used()


# --- processes -------------------------------------------------------------------------------------------------------


def work(seed: int, start: int, stop: int, shrunk: str, attached: bool) -> None:
    """Judge the programs of one process; a line of JSON before and after each. shrunk: "first", "all" or "none"."""
    kinds: set[str] = set()
    for index in range(start, stop):
        print(json.dumps({"begin": index}), flush=True)
        program = random_program(seed, index, attached)
        verdict = judge(program.source())
        lines: list[dict[str, str]] = []
        for finding in verdict.findings:
            known = _signature(finding) in kinds
            kinds.add(_signature(finding))
            wanted = shrunk == "all" or (shrunk == "first" and not known)
            small, found = shrink(program, finding) if wanted else (program, finding)
            lines.append({"signature": _signature(finding), "text": str(found), "source": small.source()})
        print(json.dumps({"index": index, "outcome": verdict.outcome, "findings": lines}), flush=True)


def _signature(finding: Finding) -> str:
    """What findings of one kind have in common."""
    text = "" if finding.kind in ("results", "state") else re.sub(r"\d+", "#", finding.text)[:80]
    return f"{finding.way}: {finding.kind} {text}".strip()


class _Worker:
    """A process that judges a range of programs, started again behind a program that crashed it or does not end."""

    def __init__(self, options: argparse.Namespace, start: int, stop: int) -> None:
        self.options, self.next, self.stop = options, start, stop
        self.begin()

    def begin(self) -> None:
        self.since = time.monotonic() + 30  # imports take a while
        values = [self.options.seed, self.next, self.stop, self.options.shrink, int(self.options.attached)]
        command = [sys.executable, "-m", "scripts.fuzz_programs", "0", "--work", *map(str, values)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.tail: list[str] = []

    def line(self, text: str) -> dict[str, Any] | None:
        """The outcome of a program, if that is what the process printed."""
        self.since = time.monotonic()
        try:
            answer: Any = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.tail = [*self.tail[-20:], text]
            return None
        values = cast("dict[str, Any]", answer)
        self.next = values.get("begin", self.next)
        if "index" not in values:
            return None
        self.next = values["index"] + 1
        return values

    def failed(self, how: str) -> dict[str, Any]:
        """The outcome of the program that ended the process."""
        index = self.next
        source = random_program(self.options.seed, index, self.options.attached).source()
        self.next += 1
        text = f"{how}\n{''.join(self.tail[-8:])}"
        return {"index": index, "outcome": how, "findings": [{"signature": how, "text": text, "source": source}]}


def outcomes(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The outcomes of all programs, as their processes end them."""
    batches = iter(range(0, options.count, _BATCH))
    selector = selectors.DefaultSelector()

    def start(worker: _Worker) -> None:
        assert worker.process.stdout is not None
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def start_batch() -> None:
        if (first := next(batches, None)) is not None:
            start(_Worker(options, first, min(first + _BATCH, options.count)))

    for _ in range(options.workers):
        start_batch()
    while selector.get_map():
        for key, _ in selector.select(timeout=1.0):
            worker: _Worker = key.data
            text = cast("Any", key.fileobj).readline()
            if text:
                if (outcome := worker.line(text)) is not None:
                    yield outcome
                continue
            selector.unregister(key.fileobj)
            status = worker.process.wait()
            if status:
                yield worker.failed(f"crash: exit status {status}")
            if worker.next < worker.stop:
                worker.begin()
                start(worker)
            else:
                start_batch()
        for key in list(selector.get_map().values()):
            if time.monotonic() - key.data.since > options.slow:
                key.data.process.kill()


# --- the command line ------------------------------------------------------------------------------------------------


def report(options: argparse.Namespace) -> int:
    """Judge `count` programs and print each kind of finding with its smallest program. Returns the exit status."""
    start, done = time.monotonic(), Counter[str]()
    kinds: dict[str, list[tuple[int, str, str]]] = {}
    for outcome in outcomes(options):
        done[outcome["outcome"]] += 1
        for found in outcome["findings"]:
            first = found["signature"] not in kinds
            kinds.setdefault(found["signature"], []).append((outcome["index"], found["text"], found["source"]))
            text = found["text"] if first else found["text"].splitlines()[0]
            print(f"program {outcome['index']}: {text}", flush=True)
            if options.failures is not None:
                options.failures.mkdir(parents=True, exist_ok=True)
                name = f"{options.seed}-{outcome['index']:05}-{re.sub('[^a-z]+', '-', found['signature'].lower())[:50]}"
                comment = "".join(f"# {line}\n" for line in found["text"].splitlines())
                (options.failures / f"{name}.py").write_text(comment + found["source"])
    seconds = time.monotonic() - start
    print(f"{sum(done.values())} programs in {seconds:.0f} s, {sum(map(len, kinds.values()))} findings")
    for name, times in sorted(done.items()):
        print(f"  {name}: {times}")
    for signature, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        index, text, source = min(found, key=lambda f: len(f[2]))
        print(f"\n{len(found)} x {signature}\n--seed {options.seed} --only {index}: {text}\n{source}")
    return 1 if kinds else 0


def one(program: Program | None, source: str) -> int:
    """Judge one program and print it, shrunk if it is wrong. Returns the exit status."""
    verdict = judge(source)
    print(source)
    print(verdict.outcome)
    for finding in verdict.findings:
        print(finding)
        if program is not None:
            small, found = shrink(program, finding)
            print(f"\nsmaller: {found}\n{small.source()}")
    return 1 if verdict.findings else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = fuzzing.parser("scripts.fuzz_programs", __doc__ or "")
    parser.set_defaults(slow=120.0)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", type=int, help="judge this program alone, and shrink it")
    parser.add_argument("--file", type=Path, help="judge the program of a file that --failures wrote")
    parser.add_argument("--shrink", choices=("first", "all", "none"), default="first", help="which findings are shrunk")
    parser.add_argument(
        "--attached", action="store_true", help="losses also read earlier values that are not detached (other programs)"
    )
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "TVM_NUM_THREADS", "META_COMPILE_JOBS"):
        os.environ.setdefault(name, "1")
    if options.work is not None:
        seed, first, stop = map(int, options.work[:3])
        work(seed, first, stop, options.work[3], options.work[4] == "1")
        return 0
    if options.file is not None:
        return one(None, options.file.read_text())
    if options.only is not None:
        program = random_program(options.seed, options.only, options.attached)
        return one(program, program.source())
    return report(options)


if __name__ == "__main__":
    sys.exit(main())
