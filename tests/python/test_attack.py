"""Short runs of the attacks (`python -m tests.attack` runs them at length), and the processes that they run in."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.attack import workers
from tests.attack.__main__ import COUNTS

SHORT = {"calls": 200, "files": 400, "hostile": 24}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_run_finds_nothing(name: str) -> None:
    run = workers.attack(name, 0, SHORT[name], 200)
    assert run.done == SHORT[name]
    assert run.findings == [], "\n".join(workers.table([run]))


def test_interrupts_and_threads() -> None:
    run = workers.attack("concurrency", 0, 2, 100)
    assert run.findings == [], "\n".join(workers.table([run]))


def test_crashes_hangs_and_errors_are_found() -> None:
    run = workers.attack("faulty", 3, 10, 60, limit=1.0)
    assert run.done == 10
    assert [(f.case, f.kind) for f in sorted(run.findings, key=lambda f: f.case)] == [
        (2, "crash"), (5, "hang"), (7, "wrong"), (8, "wrong"),
    ]  # fmt: skip
    text = "\n".join(workers.table([run]))
    assert "python -m tests.attack faulty --seed 3 --case 5" in text
    assert "KeyError: 'seven'" in text


def test_the_exit_status_says_whether_there_are_findings() -> None:
    def status(*options: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "tests.attack", *options], cwd=workers.ROOT, check=False
        ).returncode

    assert status("files", "--case", "1") == 0
    assert status("nothing") == 2
    assert set(SHORT) | {"programs", "cache", "concurrency", "soak"} == set(COUNTS)
