"""Programs for a GPU in files: the loaded program computes what the saved one does. Skipped without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import DeviceError, FileError
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

LOADS = """
import sys
import numpy as np
import meta

program = meta.vm.load(sys.argv[1])
x = meta.array(np.load(sys.argv[2]), device="cuda")
target = meta.array(np.arange(6) % 4, device="cuda")
print(*(program(x, target).item().hex() for _ in range(5)))
"""


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_KEY_DIR", str(tmp_path / "key"))


def _training() -> tuple[Any, Any]:
    """A step of a network with dropout on the GPU, and a batch."""
    meta.random.seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)).to("cuda")
    step = meta.optim.TrainStep(model, meta.optim.AdamW(model, 0.01), meta.cross_entropy)
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    return meta.vm.compile(step, device="cuda"), x


@pytest.mark.parametrize("graphs", [False, True])
def test_training_steps_go_on_in_another_process(graphs: bool, tmp_path: Path) -> None:
    executor, host = _training()
    x, target = meta.array(host, device="cuda"), meta.array(np.arange(6) % 4, device="cuda")
    for _ in range(4 if graphs else 1):  # the third call is recorded as a CUDA graph
        executor(x, target)
    executor.save(tmp_path / "step")
    np.save(tmp_path / "x.npy", host)
    state = meta.random.default_generator.state
    expected = [executor(x, target).item() for _ in range(5)]
    seeded = LOADS.replace("print", f"meta.random.default_generator.state = {state!r}\nprint", 1)
    command = [sys.executable, "-c", seeded, str(tmp_path / "step"), str(tmp_path / "x.npy")]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    losses = [float.fromhex(loss) for loss in process.stdout.split()]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_loops_in_files(tmp_path: Path) -> None:
    def run(xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = meta.tanh(meta.dropout(h, meta.random.next_key("cuda"), 0.5)[0] + x)
            return h, h

        return meta.scan(step, meta.zeros((3,), device="cuda"), xs)[1]

    executor = meta.vm.compile(meta.trace(run), device="cuda")
    xs = meta.array(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32), device="cuda")
    meta.random.seed(3)
    expected = executor(xs).numpy()
    executor.save(tmp_path / "loop")
    loaded = meta.vm.load(tmp_path / "loop")
    for call in (loaded, run):
        meta.random.seed(3)
        np.testing.assert_allclose(call(xs).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_programs_for_another_target_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, host = _training()
    executor.program(meta.array(host, device="cuda"), meta.array(np.arange(6) % 4, device="cuda"))
    executor.save(tmp_path / "step")
    with pytest.raises((ValueError, TypeError, DeviceError)):
        meta.vm.load(tmp_path / "step")(meta.array(host), meta.array(np.arange(6) % 4))
    monkeypatch.setattr("meta.backend.tvm.target.target", lambda kind: f"another {kind}")
    with pytest.raises(FileError, match=r"was compiled for .*; expected another cuda; save the program again here"):
        meta.vm.load(tmp_path / "step")
