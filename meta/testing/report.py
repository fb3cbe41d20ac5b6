"""The report of `opcheck`: what each check found for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from meta.errors import MetaError

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check of one sample.

    check: its name.  sample: the index of the sample, None for a check of the operator itself.
    text: the problem with the actual values if it failed, the reason if it was skipped."""

    check: str
    sample: int | None
    status: Status
    text: str = ""

    def __str__(self) -> str:
        place = "" if self.sample is None else f", sample {self.sample}"
        return f"{self.check}{place}: {self.text or self.status}"


@dataclass(frozen=True, slots=True)
class OpCheckReport:
    """The result of `opcheck`; printing it shows a table.

    op: the name of the operator.  samples: each sample as text.  findings: in the order of checks and samples."""

    op: str
    samples: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings of failed checks."""
        return tuple(f for f in self.findings if f.status == "failed")

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """The findings of skipped checks, with their reasons."""
        return tuple(f for f in self.findings if f.status == "skipped")

    @property
    def summary(self) -> str:
        """One line: how many checks failed."""
        run = len(self.findings) - len(self.skipped)
        return f"{len(self.failures)} of {run} checks failed, {len(self.skipped)} skipped"

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.summary}"]
        lines += [f"  sample {i}: {text}" for i, text in enumerate(self.samples)]
        lines += _table(self.findings, len(self.samples))
        for title, findings in (("failed", self.failures), ("skipped", self.skipped)):
            lines += [title, *(f"  {line}" for line in _merged(findings))] if findings else []
        return "\n".join(lines)


def _table(findings: Sequence[Finding], samples: int) -> list[str]:
    """One row a check, one column a sample."""
    rows: dict[str, dict[int | None, str]] = {}
    for f in findings:
        rows.setdefault(f.check, {})[f.sample] = "FAILED" if f.status == "failed" else f.status
    width = max(map(len, rows), default=0)
    lines = [f"  {'':{width}}  " + "  ".join(f"{f'sample {i}':9}" for i in range(samples)).rstrip()]
    for check, cells in rows.items():
        columns = [cells[None]] if None in cells else [cells.get(i, "") for i in range(samples)]
        lines.append(f"  {check:{width}}  " + "  ".join(f"{cell:9}" for cell in columns).rstrip())
    return lines


def _merged(findings: Sequence[Finding]) -> list[str]:
    """The findings as lines; findings of several samples with one text share a line."""
    places: dict[tuple[str, str], list[int]] = {}
    for f in findings:
        places.setdefault((f.check, f.text), []).extend([] if f.sample is None else [f.sample])
    lines: list[str] = []
    for (check, text), samples in places.items():
        where = f", sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))}" if samples else ""
        lines.append(f"{check}{where}: {text}")
    return lines


class OpCheckError(MetaError, AssertionError):
    """Checks of an operator failed. report: what was found; the details show it."""

    def __init__(self, report: OpCheckReport) -> None:
        failed = ", ".join(dict.fromkeys(f.check for f in report.failures))
        super().__init__(report.op, f"{report.summary}: {failed}", details=str(report))
        self.report = report

    def __reduce__(self) -> tuple[type[OpCheckError], tuple[OpCheckReport]]:
        return OpCheckError, (self.report,)
