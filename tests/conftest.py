"""Settings of the whole test run: one thread a worker, one kernel cache shared by all workers, seeded generators.

The environment is set while pytest loads this file, before any test imports NumPy, torch or TVM, and is inherited by
pytest-xdist workers and by subprocesses that tests start. Values given from outside win.
"""

import os
import random
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_SEED = 0

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Kernels take far longer to compile than to run, so every worker and every later run reads the same ones.
os.environ.setdefault("META_CACHE_DIR", str(_ROOT / ".cache" / "kernels"))
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the generators of the libraries that are loaded, so that a failure repeats when its test runs alone."""
    random.seed(_SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(_SEED)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_SEED)
