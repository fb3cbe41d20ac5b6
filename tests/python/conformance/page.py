"""docs/measurements/conformance.md, from what was measured: `python -m tests.python.conformance.page [FILE ...]` adds
results that runs have kept (FILE: lines of JSON) to measured.tsv, and writes the page from all of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.python.conformance import measured
from tests.python.conformance.checks import Result
from tests.python.conformance.measured import Measurement
from tests.python.conformance.opinfos import ENTRIES
from tests.python.conformance.report import CHECKS, Report, escape, share, table

PAGE = Path(__file__).parents[3] / "docs" / "measurements" / "conformance.md"
MODES = ("eager", "strided", "compiled")
TIER_A = 411
"""So many entries of `entries.txt` are of tier A: the tensor library and neural networks. The others are of tier B:
linear algebra, Fourier transforms, special functions, rarer losses and layers."""

EXPLANATIONS: dict[tuple[str, str, str], str] = {
    ("linalg.norm.subgradients_at_zero", "second", "*"): "A norm has no second derivative at 0. torch gives NaN; meta "
    "gives 0, the derivative of the subgradient 0 that both give as first derivative.",
}
"""Why samples of an entry fail a check in a dtype (globs)."""


def explanation(entry: str, note: str) -> str:
    """Why samples fail, "" if no explanation is known. note: "second eager float32 failed: ..."."""
    check, _, dtype = note.split(" failed:")[0].partition(" ")
    for (name, its_check, its_dtype), text in EXPLANATIONS.items():
        if fnmatchcase(entry, name) and check == its_check and fnmatchcase(dtype.rpartition(" ")[2], its_dtype):
            return text
    return ""


def results(rows: Iterable[Measurement]) -> list[Result]:
    """The results by entry, all dtypes and modes together."""
    whole: dict[str, Result] = {}
    for row in rows:
        one = row.result()
        entry = whole.setdefault(row.entry, Result(row.entry))
        entry.counts |= one.counts
        entry.notes += one.notes
    return list(whole.values())


def page(rows: Sequence[Measurement], version: str) -> str:
    """The page."""
    entries = [row for row in rows if "backward_ops" not in row.counts]
    backward = [row.result() for row in rows if "backward_ops" in row.counts]
    report = Report(results(entries), backward)
    sections = [
        "# Conformance with PyTorch",
        _INTRODUCTION.format(version=version),
        "```\n" + report.total() + "\n```",
        "## Goals",
        _goals(entries, backward),
        "## By dtype and mode",
        _MODES_TEXT,
        _by_mode(entries),
        "## Failures",
        _failures(report),
        "## Skipped samples",
        _skipped(report.results),
        "## By entry",
        "All dtypes and modes together.",
        table(("entry", *CHECKS), report.rows()),
    ]
    if backward:
        names = sorted((r.entry, share(r.total())) for r in backward)
        sections += ["## Backward operators by themselves", table(("operator", "calls"), names)]
    return "\n\n".join(sections) + "\n"


def _sum(rows: Iterable[Measurement], check: str) -> Counter[str]:
    pairs = [row.counts.get(check, (0, 0)) for row in rows]
    return Counter(passed=sum(p for p, _ in pairs), failed=sum(f for _, f in pairs))


def _percent(count: Counter[str]) -> str:
    checked = count["passed"] + count["failed"]
    return f"{share(count)}, {100 * count['passed'] / checked:.2f} %" if checked else "not measured"


def _goals(rows: Sequence[Measurement], backward: Sequence[Result]) -> str:
    """The goals, and what was measured. An entry is reached if a sample gives torch's results, and clean if all do."""
    names = ENTRIES.read_text().split()
    reached = {row.entry for row in rows if row.counts.get("forward", (0, 0))[0]}
    failed = {row.entry for row in rows if any(f for _, f in row.counts.values())}
    lines: list[tuple[str, str, str]] = []
    for tier, goal, members in (("A", 405, names[:TIER_A]), ("B", 150, names[TIER_A:])):
        reached_members, clean = sum(n in reached for n in members), sum(n in reached - failed for n in members)
        text = f"{reached_members} of {len(members)}; {clean} without a failure"
        lines.append((f"entries of tier {tier} reached", f"{goal} of {len(members)}", text))
    eager, compiled = ([r for r in rows if (r.mode == "compiled") == is_vm and r.mode] for is_vm in (False, True))
    for check, words in (("forward", "results"), ("backward", "gradients"), ("second", "second gradients"),
                         ("jvp", "derivatives of forward mode")):  # fmt: skip
        for mode, chosen in (("eager", eager), ("compiled", compiled)):
            ran = len({row.entry for row in chosen})
            measured_share = f"{_percent(_sum(chosen, check))}; {ran} of {len(names)} entries run"
            lines.append((f"samples with torch's {words}, {mode}", "99.5 %", measured_share))
    lines.append(("bad input refused", "95 %", _percent(_sum(rows, "errors"))))
    calls = sum((r.total() for r in backward), Counter[str]())
    lines.append(("calls of stand-alone backward operators", "all", _percent(calls)))
    fuzzed = "see [Fuzzing](fuzzing.md)"
    lines.append(("findings of the fuzzer in a million calls", "none", fuzzed))
    return table(("goal", "at least", "measured"), lines)


def _by_mode(rows: Sequence[Measurement]) -> str:
    """For each dtype and mode: entries with samples, of how many that were run; samples by check; the days."""
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for row in rows:
        if row.mode:
            groups.setdefault((row.dtype, MODES.index(row.mode)), []).append(row)
    lines: list[tuple[str, ...]] = []
    for (dtype, mode), group in sorted(groups.items()):
        with_samples = sum(1 for row in group if row.counts or row.notes)
        asked = sorted({row.samples for row in group})
        days = sorted({row.date[:10] for row in group})
        shares = [share(_sum(group, check)) for check in CHECKS[:4]]
        each = f"{with_samples} of {len(group)}"
        lines.append((dtype, MODES[mode], each, _span(asked), *shares, _span(days)))
    return table(("dtype", "mode", "entries", "samples each", *CHECKS[:4], "measured on"), lines)


def _span(values: Sequence[object]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _failures(report: Report) -> str:
    """A line for each kind of failure, with its explanation."""
    lines: list[str] = []
    for result in (*report.results, *report.backward):
        kinds = Counter(note for note in result.notes if " failed:" in note)
        for note, count in kinds.items():
            why = explanation(result.entry, note)
            lines.append(f"- `{result.entry}`: {escape(note)} ({count}x). {why or 'Not explained yet.'}")
    return "\n".join(lines) or "None."


def _skipped(each: Iterable[Result]) -> str:
    """Reasons, with the entries and the number of samples that each leaves out."""
    reasons: dict[str, Counter[str]] = {}
    for result in each:
        for note in result.notes:
            if " skipped: " in note:
                reason = note.split(" skipped: ", 1)[1].split("\n")[0]
                reasons.setdefault(reason, Counter())[result.entry] += 1
    lines = [
        (escape(reason), ", ".join(f"`{e}`" for e in entries), str(entries.total()))
        for reason, entries in sorted(reasons.items(), key=lambda item: -item[1].total())
    ]
    return table(("reason", "entries", "samples"), lines) if lines else "None."


_INTRODUCTION = """\
torch has sample inputs for its operators, OpInfo. `make conformance` calls meta with the samples of torch {version},
through the table `meta.frontend.torch.aten`. It compares shapes, dtypes and values of results, gradients and second
gradients with torch's, within the tolerances of `torch.testing.assert_close` (four times these for gradients, sixteen
times for second ones). A value outside of the tolerance also passes if its error, against torch in float64, is at
most twice torch's error. If torch's forward-mode derivative is NaN, the gradient is used instead: the products of
cotangent and tangent must agree. Random operators are compared in shape and dtype, and unstable sorts up to the order
of equal elements. Input that torch refuses must be refused.

The page is written from `tests/python/conformance/measured.tsv`, which holds the result of every entry, dtype and mode,
with its date and a digest of the code. `python -m tests.python.conformance.page FILE ...` adds the results of runs."""

_MODES_TEXT = """\
Cells are samples that passed of those that were checked: `eager` calls, eager calls with non-contiguous (`strided`)
inputs, and programs `compiled` for the virtual machine. Entries are those with samples, of those that were run; torch
has no samples of an entry in a dtype that the operator does not accept. "Samples each" is the number requested, spread
evenly over torch's list. For integers, bool and half precision only results are compared."""


def update(files: Iterable[Path], store: Path = measured.STORE, target: Path = PAGE) -> None:
    """Add the results in files to the store, and write the page."""
    import torch

    added = [row for path in files for row in measured.rows_of(path)]
    measured.write([*measured.read(store), *added], store)
    target.write_text(page(measured.read(store), torch.__version__.split("+")[0]))


if __name__ == "__main__":
    update(map(Path, sys.argv[1:]))
