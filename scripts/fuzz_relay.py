"""Mutates Relay programs and parameters and reads them: the outcome may only be a result or an error of meta.

    python -m scripts.fuzz_relay 50000 --corpus DIR      text, JSON and parameters under DIR, besides those of the tests
    python -m scripts.fuzz_relay 2000 --convert          programs that still read are converted too
    python -m scripts.fuzz_relay 0 --corpus DIR          read every file as it is, and compare text with JSON

A run is determined by --seed. An input that does anything else, or takes longer than --slow seconds, is written to
--failures and reported; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import re
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from meta.errors import MetaError

DATA = Path(__file__).parent.parent / "tests" / "python" / "frontend" / "relay" / "data"
_SUFFIXES = {".relay": "text", ".json": "json", ".params": "params", ".npz": "params"}
_LARGEST = 200_000
_MEMORY = 8 << 30
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


@dataclass(slots=True)
class Report:
    """What a run saw."""

    runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    worst: tuple[float, str] = (0.0, "")
    failures: list[str] = field(default_factory=list[str])


# --- mutations ---


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
    return bytes(out[:_LARGEST])


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
    return "".join(tokens)[:_LARGEST]


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
    return json.dumps(data)[:_LARGEST]


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
    """What `data` is indexed by; nothing for what has no parts."""
    if isinstance(data, dict):
        return list(cast("dict[Any, Any]", data))
    return list(range(len(cast("list[Any]", data)))) if isinstance(data, list) else []


# --- runs ---


def read_bytes(kind: str, data: bytes, convert: bool = False) -> Any:
    """What the readers make of `data`; raises MetaError, and nothing else, for what they refuse."""
    from meta.frontend.relay.params import read_params
    from meta.frontend.relay.source import read

    if kind == "params":
        return read_params(data)
    program = read(data)
    if convert:
        from meta.frontend.relay import from_relay

        return from_relay(data)
    return program


def mutated(kind: str, data: bytes, rng: random.Random) -> bytes:
    """A mutation of a file of that kind; text and JSON by bytes, by tokens and, for JSON, by values."""
    choice = rng.random()
    if kind == "params" or choice < 0.3:
        return mutate_bytes(data, rng)
    text = data.decode("utf-8", "replace")
    changed = mutate_json(text, rng) if kind == "json" and choice < 0.85 else mutate_tokens(text, rng)
    return changed.encode("utf-8", "replace")


def attempt(report: Report, kind: str, name: str, data: bytes, convert: bool, slow: float) -> str:
    """Reads one input and enters the outcome; the reason if it is a failure, else ""."""
    report.runs += 1
    start = time.perf_counter()
    problem = ""
    try:
        read_bytes(kind, data, convert)
        report.outcomes[f"{kind} accepted"] += 1
    except MetaError as error:
        report.outcomes[f"{kind} {type(error).__name__}"] += 1
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - whatever it is, it is what this looks for
        problem = traceback.format_exc(limit=-3)
    taken = time.perf_counter() - start
    if taken > report.worst[0]:
        report.worst = (taken, f"{kind} {name}, {len(data)} bytes")
    if taken > slow:
        problem = problem or f"took {taken:.1f} s"
    return problem


def fuzz(
    files: Sequence[tuple[str, str, bytes]],
    count: int,
    seed: int,
    convert: bool = False,
    slow: float = 10.0,
    failed: Callable[[str, str, bytes, str], None] | None = None,
) -> Report:
    """`count` mutations of `files` (kind, name, bytes), determined by `seed`."""
    rng = random.Random(seed)
    report = Report()
    for number in range(count):
        kind, name, data = rng.choice(files)
        changed = mutated(kind, data, rng)
        problem = attempt(report, kind, name, changed, convert, slow)
        if problem:
            report.failures.append(f"mutation {number} of {name}: {problem}")
            if failed is not None:
                failed(kind, name, changed, problem)
    return report


def files_of(directory: Path) -> Iterator[tuple[str, str, bytes]]:
    """The programs and parameters under a directory; descriptions and expected outputs are neither."""
    for path in sorted(directory.rglob("*")):
        described = path.name.endswith((".meta.json", "_expected.npz"))
        if path.suffix in _SUFFIXES and not described and path.stat().st_size <= _LARGEST:
            yield _SUFFIXES[path.suffix], path.name, path.read_bytes()


def check(directory: Path) -> bool:
    """Reads every program under a directory, compares text with JSON, and prints the counts."""
    from meta.frontend.relay.source import read
    from meta.testing.relay import differences

    counts: Counter[str] = Counter()
    for path in sorted(directory.rglob("*.relay")):
        other = path.with_suffix(".json")
        counts["text"] += 1
        try:
            program = read(path)
            counts["text read"] += 1
            if other.exists():
                counts["json"] += 1
                saved = read(other)
                counts["json read"] += 1
                problem = list(differences(program, saved))
                counts["same"] += not problem
                for line in problem[:3]:
                    print(f"{path.name}: {line}")
        except MetaError as error:
            print(f"{path.name}: {error}")
    print(f"read: text {counts['text read']}/{counts['text']}, json {counts['json read']}/{counts['json']}, "
          f"the same {counts['same']}/{counts['json']}")  # fmt: skip
    return counts["text"] == counts["text read"] and counts["json"] == counts["json read"] == counts["same"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts.fuzz_relay", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("count", type=int, help="how many mutations")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a directory of more programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=10.0, help="seconds that one input may take")
    parser.add_argument("--convert", action="store_true", help="convert programs that read")
    parser.add_argument("--failures", type=Path, default=None, help="where inputs that fail are written")
    options = parser.parse_args(arguments)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    checked = [check(directory) for directory in options.corpus]
    files = [each for directory in (DATA, *options.corpus) for each in files_of(directory)]

    def failed(kind: str, name: str, data: bytes, problem: str) -> None:
        print(f"{kind} {name}: {problem}", flush=True)
        if options.failures is not None:
            options.failures.mkdir(parents=True, exist_ok=True)
            (options.failures / f"{len(list(options.failures.iterdir())):04}-{name}").write_bytes(data)

    start = time.perf_counter()
    report = fuzz(files, options.count, options.seed, options.convert, options.slow, failed)
    print(f"{report.runs} mutations of {len(files)} files in {time.perf_counter() - start:.0f} s, "
          f"{len(report.failures)} failures; slowest {report.worst[0]:.2f} s ({report.worst[1]})")  # fmt: skip
    for outcome, times in sorted(report.outcomes.items()):
        print(f"  {outcome}: {times}")
    return 0 if all(checked) and not report.failures else 1


if __name__ == "__main__":
    sys.exit(main())
