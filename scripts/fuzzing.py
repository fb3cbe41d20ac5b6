"""The common parts of the fuzzers of readers: mutations of bytes, tokens and JSON, a run, and its command line.

A run is determined by --seed. Each input may only be accepted or refused with an error of meta. One that does anything
else, or takes longer than --slow seconds, is reported and written to --failures; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import re
import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from meta.errors import MetaError

LARGEST: Final = 200_000
"""Bytes, or characters, of an input."""

_MEMORY: Final = 8 << 30
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|/\*|\*/|[%@]?[\w.]+|\s+|.', re.DOTALL)
_STRANGE = (
    "(", ")", "[", "]", "{", "}", ",", ";", "=", "->", "=>", "?", "_", "%", "@", "%0", "%999", "%x", "%x.0",
    "@main", "fn", "let %z = ", "if (True) { 1 } else ", "match (%x) {", "ref", "meta[relay.Constant][0]",
    "meta[relay.Constant][9]", "-1", "meta[relay.attrs.ReduceAttrs][0]", "1e999f", "99999999999999999999", "9" * 5000,
    "1f128", "0x10", '"', "/*", "*/", "//", "\0", "\ufeff", "\u2028", "\r", "Tensor[(", "float32", "List[",
    "#[metadata]", '#[version = "0.0.9"]', "((((((((", "é", "#",
    "Tensor[(9223372036854775807, 9223372036854775807), float32]", "free_var %q;", "type T { T(T) }", "extern type",
    "$", "`",
)  # fmt: skip
_JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 10**30, 1.5, "", "0", "1", "2", "-1", "99999", "x", [], [0], [1, 2, 3], {},
    {"attrs": {}}, "é", "relay.Call", "relay.Var", "Array", "Map", "IntImm", "relay.Function", "relay.TensorType",
    "1" * 400, [[[]]], "AAAA", "nan",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Input:
    """A file for a reader. kind: the format, for readers of several."""

    data: bytes
    name: str
    kind: str = ""

    def mutated(self, mutate: Mutate, rng: random.Random) -> Input:
        """The file with its data mutated."""
        return replace(self, data=mutate(self, rng))


@dataclass(frozen=True, slots=True)
class Format:
    """A format of which every file is bytes of one kind. file_name: what reports call a file; mutate: a mutation of a
    file; read: its reader, which returns the outcome."""

    file_name: str
    mutate: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes], str]

    def inputs(self, files: Sequence[bytes]) -> list[Input]:
        return [Input(data, self.file_name) for data in files]

    def fuzz(self, files: Sequence[bytes], count: int, seed: int) -> Report:
        """`count` mutations of `files`, determined by `seed`."""
        return fuzz(self.inputs(files), count, seed, self._mutate, self._read)

    def run(self, options: argparse.Namespace, files: Sequence[bytes]) -> int:
        """A run from the command line; returns its exit status."""
        return run(options, self.inputs(files), self._mutate, self._read)

    def _mutate(self, file: Input, rng: random.Random) -> bytes:
        return self.mutate(file.data, rng)

    def _read(self, file: Input) -> str:
        return self.read(file.data)


Mutate = Callable[[Input, random.Random], bytes]
Read = Callable[[Input], str]
"""Reads an input; returns the outcome, a word such as "accepted"."""


@dataclass(slots=True)
class Report:
    """The outcome of a run: how often each outcome of an input
    occurred, the slowest input with its seconds, and the failures."""

    runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    worst: tuple[float, str] = (0.0, "")
    failures: list[str] = field(default_factory=list[str])


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes of bytes: flipped, inserted, removed, repeated, cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        position = rng.randrange(len(out) + 1)
        length = rng.choice((1, 1, 2, 8, 64, 512))
        match rng.randrange(6):
            case 0:
                out[position : position + 1] = bytes((rng.randrange(256),))
            case 1:
                out[position:position] = rng.randbytes(length)
            case 2:
                del out[position : position + length]
            case 3:
                out[position:position] = out[position : position + length] * rng.choice((1, 2, 50))
            case 4:
                del out[position:]
            case _:
                source = rng.randrange(len(out) + 1)
                out[position : position + length] = out[source : source + length]
    return bytes(out[:LARGEST])


def mutate_tokens(text: str, rng: random.Random) -> str:
    """One to four changes of tokens: removed, repeated, swapped, replaced by another or by a strange one."""
    tokens: list[str] = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not tokens:
            break
        position, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(10):
            case 0:
                del tokens[position]
            case 1:
                tokens[position], tokens[other] = tokens[other], tokens[position]
            case 2:
                tokens[position] = tokens[other]
            case 3:
                tokens.insert(position, rng.choice(_STRANGE))
            case 4:
                tokens[position] = rng.choice(_STRANGE)
            case 5:
                end = position + rng.choice((1, 5, 30))
                tokens[position:position] = tokens[position:end] * rng.choice((1, 2, 200))
            case 6 | 7 | 8:
                _replace_alike(tokens, rng)
            case _:
                tokens[position:position] = [rng.choice(_STRANGE)] * rng.choice((10, 1000))
    return "".join(tokens)[:LARGEST]


def _replace_alike(tokens: list[str], rng: random.Random) -> None:
    """A number by another number, or a name by another name: what most often still parses."""
    like = rng.choice((r"\d+", r"[a-z_]+\.?[a-z_0-9]+", r"%[\w.]+", r'"\w*"'))
    places = [position for position, token in enumerate(tokens) if re.fullmatch(like, token)]
    if places:
        other = tokens[rng.choice(places)]
        number = str(rng.choice((0, 1, 2, 3, 7, 64, 2**31, 2**63 - 1)))
        tokens[rng.choice(places)] = number if like == r"\d+" and rng.random() < 0.5 else other


def mutate_json(text: str, rng: random.Random) -> str:
    """One to four changes of the parsed JSON: values replaced, keys and elements removed, nodes swapped."""
    try:
        data = json.loads(text)
    except ValueError:
        return mutate_tokens(text, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _mutate_value(data, rng)
    return json.dumps(data)[:LARGEST]


def _mutate_value(data: Any, rng: random.Random) -> None:
    """One change somewhere inside of `data`, where most changes hit the nodes."""
    while keys := _keys(data):
        key = "nodes" if "nodes" in keys and rng.random() < 0.9 else rng.choice(keys)
        inner: Any = data[key]
        if _keys(inner) and rng.random() < 0.85:
            data = inner
            continue
        choice = rng.randrange(4)
        if choice == 0:
            del data[key]
        elif choice == 1:
            data[key] = copy.deepcopy(rng.choice(_JSON_VALUES))
        elif choice == 2 and isinstance(inner, str) and inner.isdigit():
            data[key] = str(rng.randrange(40))
        else:
            data[key] = copy.deepcopy(data[rng.choice(keys)])
        return


def _keys(data: Any) -> list[Any]:
    """The keys or positions of `data`; none for a scalar."""
    if isinstance(data, dict):
        return list(cast("dict[Any, Any]", data))
    return list(range(len(cast("list[Any]", data)))) if isinstance(data, list) else []


# --- runs ---


def fuzz(
    files: Sequence[Input],
    count: int,
    seed: int,
    mutate: Mutate,
    read: Read,
    slow: float = 10.0,
    failed: Callable[[Input, str], None] | None = None,
) -> Report:
    """`count` mutations of `files`, determined by `seed`. slow: seconds of processor time that one input may take."""
    rng = random.Random(seed)
    report = Report()
    for number in range(count):
        changed = rng.choice(files).mutated(mutate, rng)
        label = f"mutation {number} of {changed.name}"
        problem = _attempt(report, changed, read, slow, label)
        if problem:
            report.failures.append(f"{label}: {problem}")
            if failed is not None:
                failed(changed, report.failures[-1])
    return report


def _attempt(report: Report, file: Input, read: Read, slow: float, label: str) -> str:
    """Read one input and enter the outcome; the reason if it is a failure, else ""."""
    report.runs += 1
    start, outcome, problem = time.process_time(), "", ""
    try:
        outcome = read(file)
    except MetaError as error:
        outcome = type(error).__name__
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001  # any other error is a failure
        problem = traceback.format_exc(limit=-4)
    if outcome:
        report.outcomes[f"{file.kind} {outcome}".strip()] += 1
    seconds = time.process_time() - start
    report.worst = max(report.worst, (seconds, f"{label}, {len(file.data)} bytes"))
    return problem or (f"took {seconds:.1f} s" if seconds > slow else "")


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The arguments of every fuzzer."""
    arguments = argparse.ArgumentParser(prog=name, description=description.split("\n", 1)[0])
    arguments.add_argument("count", type=int, help="how many mutations")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--slow", type=float, default=10.0, help="seconds of processor time that one input may take")
    arguments.add_argument("--failures", type=Path, default=None, help="where inputs that fail are written")
    return arguments


def limit_memory() -> None:
    """Let this process have at most 8 GiB of addresses, where the system can limit them."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run(options: argparse.Namespace, files: Sequence[Input], mutate: Mutate, read: Read) -> int:
    """A run from the command line; returns its exit status."""

    def failed(changed: Input, failure: str) -> None:
        print(failure, flush=True)
        if options.failures is not None:
            options.failures.mkdir(parents=True, exist_ok=True)
            number = len(list(options.failures.iterdir()))
            (options.failures / f"{number:04}-{changed.name}").write_bytes(changed.data)

    start = time.perf_counter()
    report = fuzz(files, options.count, options.seed, mutate, read, options.slow, failed)
    print(f"{report.runs} mutations of {len(files)} files in {time.perf_counter() - start:.0f} s, "
          f"{len(report.failures)} failures; slowest {report.worst[0]:.2f} s ({report.worst[1]})")  # fmt: skip
    for outcome, times in sorted(report.outcomes.items()):
        print(f"  {outcome}: {times}")
    return 1 if report.failures else 0
