"""Mutates Relay programs and parameters and reads them: the outcome may only be a result or an error of meta.

    python -m scripts.fuzz_relay 50000 --corpus DIR      text, JSON and parameters under DIR, besides those of the tests
    python -m scripts.fuzz_relay 2000 --convert          programs that still read are converted too
    python -m scripts.fuzz_relay 0 --corpus DIR          read every file as it is, and compare text with JSON

scripts/fuzzing.py has what every fuzzer of readers does.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from meta.errors import MetaError
from scripts import fuzzing
from scripts.fuzzing import Input, Report, mutate_bytes, mutate_json, mutate_tokens

DATA = Path(__file__).parent.parent / "tests" / "python" / "frontend" / "relay" / "data"
_SUFFIXES = {".relay": "text", ".json": "json", ".params": "params", ".npz": "params"}


def read_bytes(kind: str, data: bytes, convert: bool = False) -> Any:
    """The result of the readers for `data`; raises MetaError, and nothing else, for what they refuse."""
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


def fuzz(files: Sequence[tuple[str, str, bytes]], count: int, seed: int) -> Report:
    """`count` mutations of `files` (kind, name, bytes), determined by `seed`."""
    return fuzzing.fuzz(_inputs(files), count, seed, _mutate, _read)


def _inputs(files: Sequence[tuple[str, str, bytes]]) -> list[Input]:
    return [Input(data, name, kind) for kind, name, data in files]


def _mutate(file: Input, rng: random.Random) -> bytes:
    return mutated(file.kind, file.data, rng)


def _read(file: Input) -> str:
    read_bytes(file.kind, file.data)
    return "accepted"


def _convert(file: Input) -> str:
    read_bytes(file.kind, file.data, convert=True)
    return "accepted"


def files_of(directory: Path) -> Iterator[tuple[str, str, bytes]]:
    """The programs and parameters under a directory; descriptions and expected outputs are neither."""
    for path in sorted(directory.rglob("*")):
        described = path.name.endswith((".meta.json", "_expected.npz"))
        if path.suffix in _SUFFIXES and not described and path.stat().st_size <= fuzzing.LARGEST:
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
    parser = fuzzing.parser("scripts.fuzz_relay", __doc__ or "")
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a directory of more programs")
    parser.add_argument("--convert", action="store_true", help="convert programs that read")
    options = parser.parse_args(arguments)
    fuzzing.limit_memory()
    checked = [check(directory) for directory in options.corpus]
    files = [each for directory in (DATA, *options.corpus) for each in files_of(directory)]
    status = fuzzing.run(options, _inputs(files), _mutate, _convert if options.convert else _read)
    return status if all(checked) else 1


if __name__ == "__main__":
    sys.exit(main())
