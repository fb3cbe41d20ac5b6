"""Operators agree with torch on the samples that torch keeps for them: one sample of every other entry here, in float32
with its gradient; `make conformance` checks all of them, in all dtypes, compiled, and to second order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.python.conformance.checks import check_entry
from tests.python.conformance.opinfos import database

UNFINISHED = frozenset(Path(__file__).with_name("unfinished.txt").read_text().split())
"""Entries of which the first sample does not pass yet: the tangents of logcumsumexp lose digits in float32, those of
values that are written to one place are added up instead of the last one taken, and tangents of symmetric matrices that
are not symmetric have no one meaning."""

GROUPS = 8
STEP = 2

# Generating samples warns of what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("group", range(GROUPS))
def test_first_samples(group: int) -> None:
    names = [name for name in database() if name not in UNFINISHED][::STEP][group::GROUPS]
    results = [check_entry(database()[n], [torch.float32], [torch.float32], 1, orders=1, errors=False) for n in names]
    assert {r.entry: r.notes for r in results if r.total()["failed"]} == {}
    assert sum(r.total()["passed"] for r in results) > len(names)


@pytest.mark.parametrize("name", ["nn.functional.linear", "var", "tril", "gather"])
def test_first_samples_compiled_and_strided(name: str) -> None:
    result = check_entry(database()[name], [torch.float32], [torch.float32], 1, compiled=1, strided=True)
    assert [note for note in result.notes if " failed:" in note] == []
    modes = {mode for _, mode, _ in result.counts}
    assert {"eager", "compiled", "strided"} <= modes


def test_unfinished_entries_exist() -> None:
    assert set(database()) >= UNFINISHED
