"""Results kept in files, so that a run that was stopped goes on, and runs of several processes or machines add up."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import meta
from tests.python.conformance.checks import Result
from tests.python.conformance.report import decoded, encoded


@dataclass(frozen=True, slots=True)
class Results:
    """A folder with files of JSON lines: a line is what one dtype of an entry gave. Lines of other settings, or of
    other code, do not count.

    any_code: count lines of other versions of the code too."""

    folder: Path
    settings: dict[str, Any]
    any_code: bool = False

    def read(self) -> dict[tuple[str, str], Result]:
        """By entry and dtype the newest result."""
        files = sorted(self.folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        rows = [row for path in files for row in _rows(path)]
        return {(row["entry"], row["dtype"]): decoded(row) for row in rows if self._counts(row)}

    def _counts(self, row: dict[str, Any]) -> bool:
        return row["settings"] == self.settings and (self.any_code or row["code"] == code())

    def add(self, dtype: str, result: Result) -> None:
        """Keep a result, in this process's file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{os.uname().nodename}-{os.getpid()}.jsonl", "a") as file:
            file.write(json.dumps(kept(result, dtype, self.settings)) + "\n")


def kept(result: Result, dtype: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A result as a row of a file: when, with which code and settings it came about."""
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    return {**encoded(result), "dtype": dtype, "settings": settings, "code": code(), "date": date}


def merged(entry: str, results: Iterable[Result]) -> Result:
    """The results of an entry's dtypes as one."""
    whole = Result(entry)
    for result in results:
        whole.notes += result.notes
        for key, count in result.counts.items():
            whole.counts[key] = whole.counts.get(key, Counter()) + count
    return whole


@cache
def code() -> str:
    """A digest of the sources that decide results: the package's and the checks'."""
    digest = hashlib.sha256()
    for folder in (Path(meta.__file__).parent, Path(__file__).parent):
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".yaml", ".txt")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file. The last line of a process that was killed may be half a line."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
