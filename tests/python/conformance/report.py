"""Results of all entries as a page, a table and a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.python.conformance.checks import Result

CHECKS = ("forward", "backward", "second", "jvp", "errors")
MODES = ("eager", "compiled", "strided")


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
        parts += [f"{check}={_share(self._sum(check))}" for check in CHECKS]
        parts.append(f"backward_ops={_share(sum((r.total() for r in self.backward), Counter()))}")
        return "TOTAL " + " ".join(parts)

    def failures(self) -> list[str]:
        """A line for each kind of failure of an entry and of a stand-alone operator."""
        kinds = [(r.entry, Counter(n for n in r.notes if " failed:" in n)) for r in (*self.results, *self.backward)]
        return [f"{name}: {note} ({c}x)" for name, notes in kinds for note, c in notes.items()]

    def _sum(self, check: str) -> Counter[str]:
        return sum((r.total(check) for r in self.results), Counter[str]())

    def rows(self) -> list[tuple[str, ...]]:
        """For each entry: passed of checked samples by check, all modes and dtypes together."""
        return [(r.entry, *(_share(r.total(check)) for check in CHECKS)) for r in self.results]

    def by_mode(self) -> list[tuple[str, ...]]:
        """For each check and dtype: passed of checked samples by mode."""
        counts: dict[tuple[str, str], dict[str, Counter[str]]] = {}
        for r in self.results:
            for (check, mode, dtype), count in r.counts.items():
                modes = counts.setdefault((check, dtype), {})
                modes[mode or "eager"] = modes.get(mode or "eager", Counter()) + count
        order = sorted(counts, key=lambda key: (CHECKS.index(key[0]), key[1]))
        return [(*key, *(_share(counts[key].get(mode, Counter())) for mode in MODES)) for key in order]

    def page(self, command: str, version: str) -> str:
        """The page docs/conformance.md."""
        failures = [f"- {_escape(line)}" for line in self.failures()]
        skipped = Counter(
            (r.entry, n.split(" skipped: ", 1)[1]) for r in self.results for n in r.notes if " skipped:" in n
        )
        left_out = [f"- `{entry}`: {_escape(reason)} ({count}x)" for (entry, reason), count in skipped.items()]
        sections = [
            "# Conformance with PyTorch",
            _INTRODUCTION.format(version=version, command=command),
            "```\n" + self.total() + "\n```",
            "## By dtype and mode",
            _table(("check", "dtype", *MODES), self.by_mode()),
            "## By entry",
            _table(("entry", *CHECKS), self.rows()),
        ]
        if self.backward:
            rows = sorted((r.entry, _share(r.total())) for r in self.backward)
            sections += ["## Backward operators by themselves", _table(("operator", "calls"), rows)]
        sections += ["## Failures", "\n".join(failures) or "None."]
        sections += ["## Skipped samples", "\n".join(left_out) or "None."]
        return "\n\n".join(sections) + "\n"


_INTRODUCTION = """\
torch keeps a database of sample inputs for its operators, OpInfo. `make conformance` feeds those of torch {version} to
meta through the table `meta.frontend.torch.aten` and compares shapes, dtypes and values of results, gradients and
second gradients with torch's, within the tolerances of `torch.testing.assert_close` (gradients: four times those,
second ones: sixteen times). A value outside of them also passes if it is as close to a float64 run of torch as twice
torch's own error. Random operators are compared in shape and dtype, and unstable sorts up to the order of equal
elements. Bad input that torch refuses has to be refused.

This page was written by `{command}`. Cells are samples that passed of those that were checked: `eager` calls, programs
`compiled` for the virtual machine, and eager calls with non-contiguous (`strided`) inputs."""


def _share(count: Mapping[str, int]) -> str:
    passed, failed = count.get("passed", 0), count.get("failed", 0)
    return f"{passed}/{passed + failed}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
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
