"""Faults of the cache on disk: killed processes, files that may not grow, and the tests of full disks, other owners and
altered entries."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time

from tests.attack.workers import ROOT

TESTS = ("tests/python/test_cache_failures.py", "tests/python/test_cache_trust.py", "tests/python/test_cache.py")
_PROGRAM = """
import resource, sys
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import warnings; warnings.simplefilter("ignore")
import meta
x = meta.array([[1.0, -2.0], [3.0, 0.5]])
assert meta.exp(x).tolist() != meta.tanh(x).tolist()
assert (x @ x).tolist() == [[-5.0, -3.0], [4.5, -5.75]]
f = meta.vm.compile(meta.trace(lambda x: (meta.relu(x) * 2.0).sum(0)))
assert f(x).tolist() == [8.0, 1.0]
print("right")
"""


def case(seed: int, index: int) -> str:
    """One kill of a process that compiles, one limit of a file's size, or one file of tests."""
    if index < len(TESTS):
        return run_tests(TESTS[index])
    rng = random.Random(f"cache/{seed}/{index}")
    with tempfile.TemporaryDirectory(prefix="meta-attack-") as folder:
        variables = {**os.environ, "META_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
        for _ in range(3):
            process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=variables, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.2, 3.0))
            process.kill()
            process.wait()
        for options in ([str(rng.choice((0, 4096, 20_000)))], []):
            command = [sys.executable, "-c", _PROGRAM, *options]
            completed = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=False)
            if completed.stdout != "right\n":
                error = completed.stderr[-1500:]
                return f"exit status {completed.returncode} after kills, with file sizes {options}: {error}"
    return ""


def run_tests(path: str) -> str:
    """The failures of a file of tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return completed.stdout[-2000:] if completed.returncode else ""
