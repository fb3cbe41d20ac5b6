"""What a failure leaves: the last checkpoint, from which torchrun's next try goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meta
from meta import distributed
from tests.python.distributed.processes import free_port
from tests.python.distributed.restarted import FAULT, STEPS, batch, training_step


def test_a_rank_that_ends_while_it_saves_loses_one_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--monitor-interval", "0.1"]
    command += ["-m", "tests.python.distributed.restarted", str(tmp_path)]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert not done.returncode, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "losses.txt").read_text().splitlines()]
    tries = [(int(attempt), number) for attempt, number, _ in lines]
    assert tries == [*((0, i) for i in range(FAULT + 1)), *((1, i) for i in range(FAULT, STEPS))]
    step = training_step()
    expected = [step(*map(meta.array, batch(number))).item() for number in range(STEPS)]
    np.testing.assert_allclose([loss for *_, loss in lines], [expected[number] for _, number in tries], 1e-9)


def test_a_process_that_ends_while_it_replaces_a_checkpoint_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, path = training_step(), tmp_path / "checkpoint"
    assert not distributed.exists(path)
    step(*map(meta.array, batch(0)))
    distributed.save(path, step)
    expected = step.model.w.detach().numpy().copy()
    step(*map(meta.array, batch(1)))
    rename = Path.rename

    def ended(source: Path, target: Path) -> Path:
        if target == path:
            raise KeyboardInterrupt
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", ended)
        with pytest.raises(KeyboardInterrupt):
            distributed.save(path, step)
    assert not path.exists()
    assert distributed.exists(path)
    other = training_step()
    distributed.load(path, other)
    np.testing.assert_array_equal(other.model.w.detach().numpy(), expected)
    distributed.save(path, step)
    distributed.load(path, other)
    np.testing.assert_array_equal(other.model.w.detach().numpy(), step.model.w.detach().numpy())
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]
