"""The command of examples/gpt_distributed.py, with tiny sizes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples import gpt_distributed
from tests.python.distributed.processes import free_port

SIZES = ["--batch", "4", "--features", "16", "--layers", "1", "--length", "8"]


def test_two_processes_train_as_one_which_goes_on_from_their_checkpoint(tmp_path: Path) -> None:
    losses = gpt_distributed.main([*SIZES, "--steps", "4"])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command += ["--master-port", str(free_port()), "examples/gpt_distributed.py", *SIZES]
    saved = ["--checkpoint", str(tmp_path), "--every", "2"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *saved, "--steps", "2"], env=env, capture_output=True, text=True, timeout=250, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    match = re.search(r"loss (\S+) -> (\S+) after 2 steps on 2 processes", done.stdout)
    assert match is not None, done.stdout
    assert [float(match[1]), float(match[2])] == pytest.approx(losses[:2], abs=2e-4)
    assert gpt_distributed.main([*SIZES, *saved, "--steps", "4"]) == pytest.approx(losses[2:], rel=1e-5)
