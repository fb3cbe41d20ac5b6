"""Operators agree with torch on the samples that torch keeps for them: one sample of every other entry here, in float32
with its gradient; `make conformance` checks all of them, in all dtypes, compiled, and to second order."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.python.conformance import torch_opinfos
from tests.python.conformance.checks import check_entry
from tests.python.conformance.opinfos import database

GROUPS = 8
STEP = 2
STRIDE = 8

# Generating samples warns of what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("group", range(GROUPS))
def test_first_samples(group: int) -> None:
    names = [*database()][::STEP][group::GROUPS]
    results = [check_entry(database()[n], [torch.float32], [torch.float32], 1, orders=1, errors=False) for n in names]
    assert {r.entry: r.notes for r in results if r.total()["failed"]} == {}
    assert sum(r.total()["passed"] for r in results) > len(names)


@pytest.mark.parametrize("name", ["nn.functional.linear", "var", "tril", "gather"])
def test_first_samples_compiled_and_strided(name: str) -> None:
    result = check_entry(database()[name], [torch.float32], [torch.float32], 1, compiled=1, strided=True)
    assert [note for note in result.notes if " failed:" in note] == []
    modes = {mode for _, mode, _ in result.counts}
    assert {"eager", "compiled", "strided"} <= modes


@pytest.mark.parametrize("group", range(2))
def test_first_samples_through_operators_of_torch(group: int) -> None:
    """Results, gradients, vmap and autocast; `python -m tests.python.conformance.torch_opinfos` checks all samples."""
    checked = [torch_opinfos.check(name, 1) for name in [*database()][group :: 2 * STRIDE]]
    assert [line for _, failed in checked for line in failed] == []
    passed = sum((counts for counts, _ in checked), Counter[str]())
    assert all(passed[kind] > len(checked) // 2 for kind in ("forward", "backward", "vmap", "autocast"))
