"""The fuzzer of programs: its programs repeat, cover what it promises, and shrink; some of them are judged."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import fuzz_programs
from scripts.program_judge import Finding, judge
from scripts.random_programs import random_program

SOME = [random_program(1, index).source() for index in range(400)]


def test_programs_are_determined_by_seed_and_index() -> None:
    assert SOME[:20] == [random_program(1, index).source() for index in range(20)]
    assert len(set(SOME)) == len(SOME)


@pytest.mark.parametrize(
    "part",
    ["meta.adam(", "meta.batch_norm_train(", "meta.cond(", "meta.scan(", "meta.while_loop(", "autograd.grad(",
     "TrainStep(", "accumulate=2", "GradScaler(", ".step()", ".reshape(", "[...] =", ".update(", "'fuse': False",
     "BUDGETS = (0.0", "DYNAMIC = {'x0'", "'float64'", "'float32'", "'bfloat16'", "c0 += 1", "-= g0"],
)  # fmt: skip
def test_programs_have_all_kinds_of_statements(part: str) -> None:
    assert sum(part in source for source in SOME) >= 4


def test_findings_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of a program but the call that makes it wrong."""

    def judged(source: str, ways: Any) -> list[Finding]:
        del ways
        return [Finding("compiled", "results", "")] if "meta.adam(" in source else []

    monkeypatch.setattr(fuzz_programs, "_judged", judged)
    program = next(p for p in (random_program(1, i) for i in range(100)) if "meta.adam(" in p.source())
    small, _ = fuzz_programs.shrink(program, Finding("compiled", "results", ""))
    assert len(small.source()) < len(program.source())
    assert [s for s in small.body if "meta.adam(" in s.lines[0]]
    assert len(small.body) < len(program.body)


@pytest.mark.parametrize("index", range(8))
def test_a_few_programs_are_right(index: int) -> None:
    assert judge(random_program(2, index).source()).findings == ()
