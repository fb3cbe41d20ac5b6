"""After a failure, torchrun's next try goes on from the last checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meta
from meta import distributed
from meta.errors import FileError
from tests.python.distributed.processes import free_port
from tests.python.distributed.restarted import FAULT, STEPS, batch, training_step


def test_a_rank_that_ends_while_it_saves_loses_one_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--monitor-interval", "0.1"]
    command += ["-m", "tests.python.distributed.restarted", str(tmp_path)]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert not completed.returncode, completed.stderr[-2000:]
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


def _saved(folder: Path) -> Path:
    step = training_step()
    step(*map(meta.array, batch(0)))
    distributed.save(folder / "checkpoint", step)
    (file,) = (folder / "checkpoint").iterdir()
    return file


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lambda old: old[:-20], "incomplete metadata, file not fully covered"),
        (lambda old: old[:30], "invalid header length"),
        (lambda _: b"", "header too small"),
        (lambda old: (10**15).to_bytes(8, "little") + old[8:], "header too large"),
        (lambda old: old[:10] + b"\xff\xfe" + old[12:], "invalid UTF-8 in header"),
    ],
    ids=["end", "most", "all", "size", "text"],
)
def test_damaged_files_are_refused(content: Callable[[bytes], bytes], problem: str, tmp_path: Path) -> None:
    file = _saved(tmp_path)
    file.write_bytes(content(file.read_bytes()))
    step = training_step()
    before = [x.detach().numpy().copy() for _, x in step.named_state()]
    with pytest.raises(FileError, match=problem):
        distributed.load(file.parent, step)
    for (_, x), old in zip(step.named_state(), before, strict=True):
        np.testing.assert_array_equal(x.detach().numpy(), old)


_FULL = """
import resource, signal, sys
from meta import distributed
from meta.errors import FileError
from tests.python.distributed.restarted import training_step
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
for path in sys.argv[1:]:
    try:
        distributed.save(path, training_step())
    except FileError as error:
        print("refused" if path in str(error) else error)
"""


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files simulates the full disk."""
    file = _saved(tmp_path)
    old = file.read_bytes()
    paths = [str(file.parent), str(tmp_path / "one.safetensors")]
    completed = subprocess.run(
        [sys.executable, "-c", _FULL, *paths], capture_output=True, text=True, timeout=100, check=False
    )
    assert completed.stdout.split() == ["refused", "refused"], completed.stdout + completed.stderr
    assert file.read_bytes() == old
    assert not Path(paths[1]).exists()
