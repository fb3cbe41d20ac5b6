"""The page of conformance says what was measured: rows of runs, the newest of equal ones, failures and reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.python.conformance import measured, page
from tests.python.conformance.checks import Result
from tests.python.conformance.results import kept


def _file(path: Path, date: str, samples: int, *results: Result, dtype: str = "float32", **more: Any) -> Path:
    settings = {"samples": samples, "compiled": 1, "gradients": ["float32"], **more}
    path.write_text("".join(json.dumps({**kept(r, dtype, settings), "date": date}) + "\n" for r in results))
    return path


def _result(entry: str, **problems: str) -> Result:
    """A result of checks: "" for a sample that passed, text for one that failed, "-reason" for one that was skipped."""
    result = Result(entry)
    for check, problem in problems.items():
        name, _, mode = check.partition("_")
        failed, skipped = ("", problem[1:]) if problem.startswith("-") else (problem, "")
        result.add(name, mode or "eager", torch.float32, failed, skipped)
    return result


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    each = _result("tanh", forward="", backward="off | by 1", forward_compiled="-no program", jvp_strided="")
    each.add("errors", "", None, "accepted: no")
    rows = measured.rows_of(_file(tmp_path / "a.jsonl", "2026-01-02 03:04", 3, each))
    assert [(row.dtype, row.mode, row.samples) for row in rows] == [
        ("", "", 3), ("float32", "compiled", 1), ("float32", "eager", 3), ("float32", "strided", 3),
    ]  # fmt: skip
    measured.write(rows, tmp_path / "store.tsv")
    assert sorted(measured.read(tmp_path / "store.tsv"), key=lambda row: row.key) == sorted(
        rows, key=lambda row: row.key
    )
    (whole,) = page.results(rows)
    assert (whole.counts, sorted(whole.notes)) == (each.counts, sorted(each.notes))


@pytest.mark.parametrize(
    ("samples", "problem", "kept_date"),
    [(2, "", "new"), (1, "", "old"), (1, "off", "new"), (4, "", "new")],
)
def test_a_newer_row_replaces_one_of_no_more_samples_and_failures_always(
    tmp_path: Path, samples: int, problem: str, kept_date: str
) -> None:
    dates = {"old": "2026-01-01 00:00", "new": "2026-01-02 00:00"}
    new = measured.rows_of(_file(tmp_path / "new", dates["new"], samples, _result("tanh", forward=problem)))
    old = measured.rows_of(_file(tmp_path / "old", dates["old"], 2, _result("tanh", forward="")))
    measured.write([*new, *old], tmp_path / "store.tsv")
    assert [row.date for row in measured.read(tmp_path / "store.tsv")] == [dates[kept_date]]


def test_backward_operators_that_are_entries_have_two_rows(tmp_path: Path) -> None:
    entry, backward = _result("native_dropout_backward", forward=""), Result("native_dropout_backward")
    backward.add("backward_ops", "eager", torch.float32, "")
    files = [
        _file(tmp_path / "a", "2026-01-02 00:00", 2, entry),
        _file(tmp_path / "b", "2026-01-03 00:00", 20, backward),
    ]
    page.update(files, tmp_path / "store.tsv", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| entries of tier B reached | 150 of 158 | 1 of 158; 1 without a failure |" in text
    assert "| calls of stand-alone backward operators | all | 1/1, 100.00 % |" in text


def test_the_page_lists_failures_with_explanations_and_reasons_of_skipped_samples(tmp_path: Path) -> None:
    zero = "linalg.norm.subgradients_at_zero"
    each = (_result("tanh", forward="", backward="-torch refuses it: <no>"), _result("sinh", forward="off"),
            _result(zero, forward="", second="off, by up to nan"))  # fmt: skip
    backward = Result("elu_backward")
    backward.add("backward_ops", "eager", torch.float32, "")
    files = [
        _file(tmp_path / "a", "2026-01-02 00:00", 1, *each),
        _file(tmp_path / "b", "2026-01-03 00:00", 20, backward),
    ]
    page.update(files, tmp_path / "store.tsv", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| entries of tier A reached | 405 of 411 | 1 of 411; 1 without a failure |" in text
    assert "| samples with torch's results, eager | 99.5 % | 2/3, 66.67 %; 3 of 569 entries run |" in text
    assert "| calls of stand-alone backward operators | all | 1/1, 100.00 % |" in text
    assert "| float32 | eager | 3 of 3 | 1 | 2/3 |  | 0/1 |  | 2026-01-02 |" in text
    assert "- `sinh`: forward eager float32 failed: off (1x). Not explained yet." in text
    assert "(1x). A norm has no second derivative at 0." in text
    assert "| torch refuses it: \\<no> | `tanh` | 1 |" in text
    assert "| elu_backward | 1/1 |" in text
