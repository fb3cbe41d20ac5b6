"""What was measured, by entry, dtype and mode, in one file of the repository. `page.py` writes
docs/measurements/conformance.md from it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.python.conformance.checks import Result
from tests.python.conformance.report import CHECKS, decoded

STORE = Path(__file__).with_name("measured.tsv")
_COLUMNS = (*CHECKS, "backward_ops")
_HEAD = ("entry", "dtype", "mode", "derivatives", "samples", "date", "code", *_COLUMNS, "notes")
_ALL = 10**6
"""The number of samples of a run over all of them."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The newest result of an entry in one dtype and mode.

    mode: "eager", "compiled", "strided", or "" for bad input.  derivatives: whether they were asked for.  samples: so
    many were asked for.  date: of the run, in UTC.  code:
    the digest of the sources that ran.  counts: passed and failed samples by check.  notes: of failed and skipped
    samples."""

    entry: str
    dtype: str
    mode: str
    derivatives: bool
    samples: int
    date: str
    code: str
    counts: Mapping[str, tuple[int, int]]
    notes: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """What the row measures. Some backward operators are entries, too."""
        return self.entry, self.dtype, self.mode, "backward_ops" in self.counts

    def replaces(self, other: Measurement) -> bool:
        """Whether this row, the newer one, says more than the other: it asked for as much, or a sample failed."""
        asked = (self.derivatives, self.samples) >= (other.derivatives, other.samples)
        return asked or any(failed for _, failed in self.counts.values())

    def line(self) -> str:
        shares = [f"{p}/{p + f}" if (p, f) != (0, 0) else "" for p, f in (self.counts.get(c, (0, 0)) for c in _COLUMNS)]
        notes = json.dumps(self.notes) if self.notes else ""
        asked = (str(int(self.derivatives)), str(self.samples))
        return "\t".join((self.entry, self.dtype, self.mode, *asked, self.date, self.code, *shares, notes))

    def result(self) -> Result:
        """As a result of one run."""
        skipped = Counter(note.split(" ")[0] for note in self.notes if " skipped:" in note)
        checks = {**dict.fromkeys(skipped, (0, 0)), **self.counts}
        counts = {
            (check, self.mode, self.dtype): +Counter(passed=p, failed=f, skipped=skipped[check])
            for check, (p, f) in checks.items()
        }
        return Result(self.entry, counts, list(self.notes))


def _parsed(line: str) -> Measurement:
    entry, dtype, mode, derivatives, samples, date, code, *shares, notes = line.split("\t")
    counts: dict[str, tuple[int, int]] = {}
    for check, share in zip(_COLUMNS, shares, strict=True):
        if share:
            passed, checked = map(int, share.split("/"))
            counts[check] = (passed, checked - passed)
    kept_notes = tuple(json.loads(notes)) if notes else ()
    return Measurement(entry, dtype, mode, derivatives == "1", int(samples), date, code, counts, kept_notes)


def read(path: Path = STORE) -> list[Measurement]:
    """The rows of a file; none if there is no such file."""
    return [_parsed(line) for line in path.read_text().splitlines()[1:]] if path.exists() else []


def write(rows: Iterable[Measurement], path: Path = STORE) -> None:
    """Keep one row of each entry, dtype and mode."""
    best: dict[tuple[str, str, str, bool], Measurement] = {}
    for row in sorted(rows, key=lambda row: row.date):
        if row.key not in best or row.replaces(best[row.key]):
            best[row.key] = row
    lines = ["\t".join(_HEAD), *(best[key].line() for key in sorted(best))]
    path.write_text("\n".join(lines) + "\n")


def rows_of(path: Path) -> list[Measurement]:
    """The rows of a file that a run has kept. Lines without a date are of the file's last change."""
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(path.stat().st_mtime))
    lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [row for line in lines for row in _split({"date": date, **line})]


def _split(line: Mapping[str, Any]) -> list[Measurement]:
    """One kept result as a row for each mode. An entry without samples of a dtype has an empty row."""
    result, settings = decoded(line), line["settings"]
    modes = {mode for _, mode, _ in result.counts} or {"eager"}
    rows: list[Measurement] = []
    for mode in sorted(modes):
        counts = {
            check: (count["passed"], count["failed"])
            for (check, m, _), count in result.counts.items()
            if m == mode and count["passed"] + count["failed"]
        }
        asked = settings["compiled"] if mode == "compiled" else settings.get("samples", settings.get("calls"))
        notes = tuple(n for n in result.notes if _mode(n) == mode)
        dtype = line["dtype"] if mode else ""
        derivatives = line["dtype"] in settings.get("gradients", ())
        rows.append(
            Measurement(
                result.entry, dtype, mode, derivatives, asked or _ALL, line["date"], line["code"][:8], counts, notes
            )
        )
    return rows


def _mode(note: str) -> str:
    """The mode that a note names: "backward eager float32 failed: ..."."""
    word = note.split(" ")[1]
    return word if word in ("eager", "compiled", "strided") else ""
