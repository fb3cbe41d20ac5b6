"""Settings of the test run: one thread per worker, one kernel cache for all workers, seeded random generators.

pytest loads this file before any test imports NumPy, torch or TVM. pytest-xdist workers and subprocesses of tests
inherit the environment set here. Variables that are already set take precedence.
"""

import gc
import os
import random
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_SEED = 0

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Compilation takes far longer than the kernels themselves, so all workers and later runs share one cache.
os.environ.setdefault("META_CACHE_DIR", str(_ROOT / ".cache" / "kernels"))
os.environ.setdefault("META_KEY_DIR", str(_ROOT / ".cache" / "key"))
os.environ.setdefault("MPLBACKEND", "Agg")
# A few small kernels are not worth what Inductor does for many: processes that import torch, compiled headers, and a
# library for each instruction set of this processor, to see whether the compiler knows it.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the million objects of modules and tests, which stay, out of all searches for cycles: they took a quarter
    of the processor time of collection, and a second whenever a test or Python searched all generations."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def seed_generators() -> None:
    """Seed the generators of all loaded libraries, so that a failing test also fails when it runs by itself."""
    random.seed(_SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(_SEED)
    if (torch := sys.modules.get("torch")) is not None:
        _seed_torch(torch)


def _seed_torch(torch: Any) -> None:
    """`torch.manual_seed`, which in a build without devices takes a millisecond: it keeps the text of the whole stack,
    for each kind of device, in case that one is initialised later."""
    if torch.backends.cuda.is_built():
        torch.manual_seed(_SEED)
    else:
        torch.default_generator.manual_seed(_SEED)


@pytest.fixture(autouse=True)
def room_in_memory() -> None:
    """Evict kernels and drop runners between tests, not in the middle of one that counts kernels or needs a runner."""
    if "meta.backend.tvm.kernel" in sys.modules:
        from tests.python.kernels_in_memory import make_room

        make_room(kernels=128, runners=256)


@pytest.fixture
def remove_operators() -> Iterator[None]:
    """Remove the operators that a test defines: tests of the registry expect only those of the package."""
    import meta
    from meta.op import registry

    before = set(registry.all_ops())
    yield
    for op in set(registry.all_ops()) - before:
        meta.unregister(op.name)
