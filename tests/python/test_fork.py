"""A child forked while other threads compile inherits no locked lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meta import locks

pytestmark = pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="the system has no fork")

_START = """
import os, signal, sys, threading, time, warnings
import numpy as np
import meta
from meta.backend.tvm import adapter as tvm
tvm.load()

def child_works(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # ends a child that hangs
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "the child hung or failed"

x = meta.array(np.ones((2, 3), "float32"))
threads = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks in a process with threads
"""

_EAGER = """
running = True
def compile_kernels():
    n = 0
    while running:
        n += 1
        meta.clip(x, 0.0, float(n)).numpy()
        meta.vm.compile(meta.trace(lambda x, n=n: meta.clip(meta.tanh(x), 0.0, float(n))))(x).numpy()

thread = threading.Thread(target=compile_kernels)
thread.start()
try:
    for i in range(6):
        time.sleep(0.1)
        child_works(lambda: meta.leaky_relu(x, 0.25 + i).numpy())
finally:
    running = False
    thread.join()
"""

_OF_TVM = """
def assert_parallel():
    assert len(os.listdir("/proc/self/task")) > threads, "no parallel kernel ran"
"""

_OF_TORCH = """
import meta.backend.torch.bridge
from meta.backend.tvm import launcher

def assert_parallel():
    assert launcher.is_shared() == (launcher._openmp() is not None)
"""

_THREADS = """
large = meta.array(np.ones((512, 512), "float32"))
program = meta.vm.compile(meta.trace(lambda x: meta.exp(x) + 1.0))
expected = program(large).numpy()
assert_parallel()
def work():
    assert (program(large).numpy() == expected).all()
for _ in range(2):
    child_works(work)
assert (program(large).numpy() == expected).all()
"""


def _run(code: str, tmp_path: Path, **variables: str) -> None:
    environment = {**os.environ, "META_CACHE_DIR": str(tmp_path / "cache"), **variables}
    process = subprocess.run(
        [sys.executable, "-c", _START + code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr


def test_children_of_a_process_that_compiles(tmp_path: Path) -> None:
    _run(_EAGER, tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize(("pool", "code"), [("tvm", _OF_TVM), ("openmp", _OF_TORCH)])
def test_children_of_a_process_with_parallel_kernels(tmp_path: Path, pool: str, code: str) -> None:
    if pool == "openmp":
        pytest.importorskip("torch")
    _run(code + _THREADS, tmp_path, TVM_NUM_THREADS="2", OMP_NUM_THREADS="2", META_THREAD_POOL=pool)


def test_locks_are_taken_in_one_order_and_released() -> None:
    outer, inner = locks.new_lock("kernels"), locks.new_lock("types")
    locks._acquire()
    try:
        locked = list(locks._held)
        assert locked.index(outer) < locked.index(inner)
    finally:
        locks._release()
    assert not locks._held
    with pytest.raises(KeyError):
        locks.new_lock("nothing")
