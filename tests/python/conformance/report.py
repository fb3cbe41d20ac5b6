"""Results of all entries as a table and a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.python.conformance.checks import Result

CHECKS = ("forward", "backward", "second", "jvp", "errors")


@dataclass(slots=True)
class Report:
    """Results of entries, and those of stand-alone backward operators."""

    results: list[Result] = field(default_factory=list)
    backward: list[Result] = field(default_factory=list)

    def total(self) -> str:
        """One line: entries without a failure, and passed samples of each check, of all that were not skipped."""
        ran = [r for r in self.results if r.counts]
        clean = sum(1 for r in ran if r.total()["passed"] and not r.total()["failed"])
        parts = [f"ops={clean}/{len(ran)}"]
        parts += [f"{check}={share(self._sum(check))}" for check in CHECKS]
        parts.append(f"backward_ops={share(sum((r.total() for r in self.backward), Counter()))}")
        return "TOTAL " + " ".join(parts)

    def failures(self) -> list[str]:
        """A line for each kind of failure of an entry and of a stand-alone operator."""
        kinds = [(r.entry, Counter(n for n in r.notes if " failed:" in n)) for r in (*self.results, *self.backward)]
        return [f"{name}: {note} ({c}x)" for name, notes in kinds for note, c in notes.items()]

    def _sum(self, check: str) -> Counter[str]:
        return sum((r.total(check) for r in self.results), Counter[str]())

    def rows(self) -> list[tuple[str, ...]]:
        """For each entry: passed of checked samples by check, all modes and dtypes together."""
        return [(r.entry, *(share(r.total(check)) for check in CHECKS)) for r in self.results]


def share(count: Mapping[str, int]) -> str:
    """Passed of checked samples: "3/4"."""
    passed, failed = count.get("passed", 0), count.get("failed", 0)
    return f"{passed}/{passed + failed}"


def escape(text: str) -> str:
    """Text in which Markdown marks nothing."""
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; nothing in place of "0/0"."""
    cells = [[("" if cell == "0/0" else cell) for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def encoded(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    return {"entry": result.entry, "notes": result.notes,
            "counts": [[*key, dict(count)] for key, count in result.counts.items()]}  # fmt: skip


def decoded(row: Mapping[str, Any]) -> Result:
    """The result that `encoded` gave."""
    counts = {(check, mode, dtype): Counter(count) for check, mode, dtype, count in row["counts"]}
    return Result(row["entry"], counts, list(row["notes"]))
