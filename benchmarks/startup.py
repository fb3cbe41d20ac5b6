"""Startup times: import, first operators and first training step, each in a new process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from benchmarks.timing import Row

_IMPORT = """
import sys, time
start = time.perf_counter(); import meta; print(time.perf_counter() - start)
assert "torch" not in sys.modules and "tvm" not in sys.modules
"""
_FIRST_OP = """
import time
import numpy
import tvm
host = numpy.ones((4, 4), "float32")
start = time.perf_counter()
import meta
meta.softmax(meta.array(host)).numpy()
print(time.perf_counter() - start)
"""
_FIRST_NUMBERS = """
import time
import tvm
import meta
start = time.perf_counter()
meta.random.normal((64, 64)).numpy()
print(time.perf_counter() - start)
"""
_FIRST_STEP = """
import time
import tvm
import meta
from meta.cli import digits
data = digits.load()
images, labels = data.batches(0, 64)[0]
meta.random.seed(0)
model = digits.DigitsNet()
trainer = meta.optim.sgd.with_sgd(learning_rate=0.05, momentum=0.9)(model, loss=meta.cross_entropy)
start = time.perf_counter()
executor = meta.vm.compile(trainer, device="cpu")
executor(images, labels).item()
print(time.perf_counter() - start)
"""


def rows() -> Iterator[Row]:
    """`import meta`, the first eager operator, the first random numbers and the first digits training step, with empty
    and warm disk cache."""
    _run(_FIRST_STEP, {})  # writes the byte code
    yield Row("import meta (neither torch nor tvm loaded)", _median(_IMPORT, {}, 5), None, "s", 0.15)
    for name, code, cold, warm in (
        ("first eager op, above the import of TVM", _FIRST_OP, 1.0, 0.5),
        ("first random.normal, above the import of TVM", _FIRST_NUMBERS, 1.0, 0.5),
        ("digits CNN training step, first call to first result", _FIRST_STEP, 10.0, 2.0),
    ):
        with tempfile.TemporaryDirectory() as cache:
            environment = {"META_CACHE_DIR": cache}
            yield Row(f"{name}, cold", _run(code, environment), None, "s", cold)
            yield Row(f"{name}, warm", _median(code, environment, 3), None, "s", warm)


def _median(code: str, environment: Mapping[str, str], times: int) -> float:
    return statistics.median(_run(code, environment) for _ in range(times))


def _run(code: str, environment: Mapping[str, str]) -> float:
    """The number that a new interpreter prints when it runs `code`, with the byte code that pip writes when it installs
    a package, or that the first run wrote."""
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    process = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    return float(process.stdout.split()[-1])
