"""Threads that call operators and compile at the same time, interrupts at random moments, and the tests of forks."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

import meta
from tests.attack.cache import run_tests
from tests.attack.workers import ROOT

_INTERRUPTED = """
import random, signal, sys, time
import meta
rng = random.Random(sys.argv[1])
x = meta.array([[1.0, -2.0], [3.0, 0.5]], requires_grad=True)
f = meta.vm.compile(meta.trace(lambda x: (meta.relu(x) * 2.0).sum(0)))
expected = [8.0, 1.0]
# An interrupted import of TVM cannot be repeated.
meta.clip(x, 0.0, 1.0), meta.softmax(x).sum().backward(), f(x)
x.grad = None
end = time.time() + 1.5
count = 0
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
while time.time() < end:
    try:
        # Again after a while: Python drops an interrupt that it raises in the callback of a weak reference.
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 5e-2), 0.4)
        while True:
            meta.clip(x, -rng.random(), 1.0)
            y = meta.softmax(x).sum(); y.backward(); x.grad = None
            f(x)
    except KeyboardInterrupt:
        count += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
assert f(x).tolist() == expected and (x @ x).tolist() == [[-5.0, -3.0], [4.5, -5.75]]
y = meta.softmax(x).sum(); y.backward()
assert x.grad is not None and count > 10
print("right")
"""


def case(seed: int, index: int) -> str:
    """One run of threads, one of interrupts, or the tests of forks."""
    match index % 3:
        case 0:
            return _threads(random.Random(f"concurrency/{seed}/{index}"))
        case 1:
            return _interrupts(f"{seed}/{index}")
        case _:
            return run_tests("tests/python/test_fork.py")


def _interrupts(seed: str) -> str:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _INTERRUPTED, seed]
    completed = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=False)
    return "" if completed.stdout == "right\n" else f"exit status {completed.returncode}: {completed.stderr[-2000:]}"


def _threads(rng: random.Random) -> str:
    """Eight threads with calls, gradients, programs and redefinitions of one operator."""
    wrong: list[str] = []
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        own = random.Random(seed)
        barrier.wait()
        end = time.time() + 1
        try:
            while time.time() < end:
                _check(own)
        except Exception as error:  # noqa: BLE001 - it is what this looks for
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "\n".join(wrong[:3])


def _check(rng: random.Random) -> None:
    """One call of some kind, compared with NumPy."""
    host: Any = np.random.default_rng(rng.randrange(2**32)).standard_normal((rng.randrange(1, 9), 4)).astype("float32")
    x = meta.array(host)
    match rng.randrange(4):
        case 0:
            low = -rng.randrange(1, 50) / 16
            np.testing.assert_array_equal(meta.clip(x, low, 1.0).numpy(), np.clip(host, low, 1.0))
        case 1:
            tracked = meta.array(host, requires_grad=True)
            (tracked * tracked).sum().backward()
            assert tracked.grad is not None
            np.testing.assert_allclose(tracked.grad.numpy(), 2 * host, rtol=1e-6)
        case 2:
            scale = float(rng.randrange(1, 6))
            program = meta.vm.compile(meta.trace(lambda x: meta.relu(x) * scale))
            np.testing.assert_array_equal(program(x).numpy(), np.maximum(host, 0) * np.float32(scale))
        case _:
            np.testing.assert_allclose((x @ x.T).numpy(), host @ host.T, rtol=1e-4, atol=1e-5)
