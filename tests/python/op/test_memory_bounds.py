"""Kernels read only their operands."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux calls")
def test_kernels_stay_inside_their_operands():
    run = [sys.executable, "-m", "tests.python.op.guarded"]
    completed = subprocess.run(run, capture_output=True, text=True, timeout=500, check=False)
    last = completed.stdout.splitlines()[-1:]
    assert completed.returncode == 0, f"exit status {completed.returncode} in {last}: {completed.stderr[-2000:]}"
    assert last == ["done"]
    assert completed.stdout.splitlines().count("ran") > 200
