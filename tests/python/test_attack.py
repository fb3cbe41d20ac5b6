"""Short runs of the attacks (`python -m tests.attack` runs them at length), and the processes that they run in."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meta.errors import ArgumentError, KernelError
from meta.op.registry import get
from meta.testing.call import OperatorCall
from tests.attack import calls, workers
from tests.attack.__main__ import COUNTS
from tests.python.op.samples import samples

SHORT = {
    "calls": 200,
    "schemas": 250,
    "files": 400,
    "pt2": 60,
    "onnx": 250,
    "relax": 250,
    "checkpoints": 50,
    "positions": 8,
    "mixed": 8,
    "hostile": 24,
}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_run_finds_nothing(name: str) -> None:
    run = workers.attack(name, 0, SHORT[name], 200)
    assert run.done == SHORT[name]
    assert run.findings == [], "\n".join(workers.texts([run]))


def test_interrupts_and_threads() -> None:
    run = workers.attack("concurrency", 0, 2, 100)
    assert run.findings == [], "\n".join(workers.texts([run]))


def test_crashes_hangs_and_errors_are_found() -> None:
    run = workers.attack("faulty", 3, 10, 60, limit=1.0)
    assert run.done == 10
    assert [(f.case, f.kind) for f in sorted(run.findings, key=lambda f: f.case)] == [
        (2, "crash"), (5, "hang"), (7, "wrong"), (8, "wrong"),
    ]  # fmt: skip
    text = "\n".join(workers.texts([run]))
    assert "python -m tests.attack faulty --seed 3 --case 5" in text
    assert "KeyError: 'seven'" in text
    assert run.core_seconds > 0.1


def test_saved_runs_are_merged_by_problem(tmp_path: Path) -> None:
    def finding(seed: int, case: int, text: str) -> workers.Finding:
        return workers.Finding("calls", seed, case, "wrong", text)

    first = workers.Run("calls", 1, 500, 2.0, 3.0, [finding(1, 7, "add: result 0 is 1.5e-3 off\nadd(float32[3])")])
    second = workers.Run("calls", 2, 500, 2.0, 3.0, [finding(2, 8, "add: result 1 is nan off\nadd(int8[4])")])
    second.findings.append(finding(2, 9, "Traceback (most recent call last):\n  line\nKeyError: 'x'"))
    for run in (first, second):
        run.save(tmp_path)
    runs = workers.saved_runs(tmp_path)
    assert sorted(runs, key=lambda run: run.seed) == [first, second]
    assert list(workers.table(runs)) == [
        "calls        seeds 1,2            1000 cases       4 s        6 core-s (6.00 ms a case)    3 findings,"
        " 2 distinct",
        "  2 x wrong: add: result # is # off",
        "      python -m tests.attack calls --seed 1 --case 7",
        "  1 x wrong: KeyError: 'x'",
        "      python -m tests.attack calls --seed 2 --case 9",
    ]


def test_errors_that_are_not_about_the_arguments_are_found() -> None:
    call = OperatorCall(get("round"), (np.zeros(2), 400), {})
    allowed = ArgumentError("round", "argument 'decimals' is 400", "less", "")
    assert calls.refusal_problem(call, allowed) == ""
    problem = calls.refusal_problem(call, KernelError("round", "its TVM compute raised OverflowError", "less", ""))
    assert problem.startswith("round: [round] its TVM compute raised OverflowError; expected less")
    assert problem.endswith("round(float64[2], 400, {})")


def test_a_call_may_have_no_results() -> None:
    sample = next(sample for sample in samples() if sample.op == "shape")
    assert (
        calls._problem(sample, OperatorCall(get("shape"), (np.zeros(()),), {}), random.Random(0), extreme=False) == ""
    )


@pytest.mark.parametrize("name", ["conv1d", "matmul"])
def test_only_what_padding_gives_may_differ_from_the_reference(name: str) -> None:
    x, w = np.ones((1, 1, 3)), np.full((1, 1, 3), np.inf)
    call = OperatorCall(get(name), (x, w), {})
    ours, theirs = np.array([np.nan, 1.0, 2.0]), np.array([np.inf, 1.0, 3.0])
    allowed = name == "conv1d"
    np.testing.assert_array_equal(calls.with_padding_of(call, ours, theirs), [np.inf, 1.0, 2.0] if allowed else ours)
    finite = OperatorCall(get(name), (x, x), {})
    np.testing.assert_array_equal(calls.with_padding_of(finite, ours, theirs), ours)


def test_the_exit_status_says_whether_there_are_findings() -> None:
    def status(*options: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "tests.attack", *options], cwd=workers.ROOT, check=False
        ).returncode

    assert status("files", "--case", "1") == 0
    assert status("nothing") == 2
    assert set(SHORT) | {"programs", "cache", "concurrency", "soak"} == set(COUNTS)
