"""One pool of threads for TVM's kernels and torch's.

TVM's kernels run parallel loops on threads of TVM, torch's in teams of OpenMP. In a program with kernels of both, the
threads of one pool wait actively on the cores that the other one needs. Kernels therefore launch their loops by a
function in launcher.ll, which asks OpenMP for a team once torch is loaded, and calls TVM until then. TVM's runtime
gives a kernel the address of that function when it loads the kernel, so kernels on disk work with and without torch.
docs/semantics.md says how many threads there are.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from meta.backend.tvm import library, runtime
from meta.locks import new_lock

_SYMBOL: Final = b"__TVMBackendParallelLaunch"
_POOLS: Final = ("openmp", "tvm")
_UNBOUNDED: Final = (1 << 31) - 1
_OPENMP: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""The parts of OpenMP that the launcher calls. libgomp has them, and libomp and libiomp5 for code compiled by GCC."""
_THREAD_COUNTS: Final = ("_ZN2at15get_num_threadsEv", "omp_get_max_threads")
"""Functions for the number of threads that the calling thread may use: torch's, else OpenMP's, which knows what
`torch.set_num_threads` said in the same thread only."""

_lock = new_lock("launcher")


@cache
def prepare() -> None:
    """Let kernels that are loaded from now on launch loops by the launcher. Without torch, or by META_THREAD_POOL, they
    keep to TVM's threads."""
    if sys.platform == "win32" or find_spec("torch") is None or _pool() == "tvm":
        return
    with _lock:
        _launcher()
        if "torch._C" in sys.modules:  # without it another thread may be importing torch
            _run_on_openmp()


def follow_torch() -> None:
    """Run the loops of kernels in torch's OpenMP. torch has been imported."""
    with _lock:
        if _launcher.cache_info().currsize:
            _run_on_openmp()


def is_shared() -> bool:
    """Whether loops run in torch's OpenMP."""
    return bool(_run_on_openmp.cache_info().currsize) and _run_on_openmp()


@cache
def _launcher() -> Any:
    """The module of the launcher. TVM's runtime gives its address to kernels from now on. The caller holds the lock."""
    module = library.functions()
    runtime.register_context_symbol(_SYMBOL, module["address"]())
    return module


@cache
def _run_on_openmp() -> bool:
    """Connect the launcher with torch's OpenMP. Returns whether there is one. The caller holds the lock."""
    functions = _openmp()
    if functions is None:
        return False
    configure = _launcher()["configure"]
    configure(*functions, _most_threads())
    if hasattr(os, "register_at_fork"):
        # The copy of a team has no threads. TVM's pool runs loops in the one thread of the child.
        os.register_at_fork(after_in_child=lambda: configure(0, *functions[1:], 1))
    return True


def _openmp() -> tuple[int, ...] | None:
    """Addresses of the functions of OpenMP that torch calls, and of the one for the number of threads."""
    torch: str = sys.modules["torch._C"].__file__ or ""
    # The global scope first, as the linker did for torch: it has libraries that the user preloads.
    for path in (None, torch):
        scope = ctypes.CDLL(path)
        addresses = [_address(scope, name) for name in _OPENMP]
        if all(addresses):
            counts = [_address(ctypes.CDLL(torch), name) for name in _THREAD_COUNTS]
            return (*addresses, next(filter(None, counts)))
    return None


def _address(scope: ctypes.CDLL, name: str) -> int:
    """The address of a function, 0 if there is none."""
    return ctypes.cast(getattr(scope, name), ctypes.c_void_p).value or 0 if hasattr(scope, name) else 0


def _most_threads() -> int:
    """The bound on the threads of a loop by TVM_NUM_THREADS."""
    text = os.environ.get("TVM_NUM_THREADS", "").strip()
    return int(text) if text.isdecimal() and 0 < int(text) < _UNBOUNDED else _UNBOUNDED


def _pool() -> str:
    """The value of META_THREAD_POOL. An invalid one is ignored, with a warning."""
    name = os.environ.get("META_THREAD_POOL", "").strip().lower() or _POOLS[0]
    if name in _POOLS:
        return name
    problem = f"META_THREAD_POOL={name[:20]!r} is not one of {', '.join(_POOLS)}"
    warnings.warn(f"{problem}; {_POOLS[0]} is used", UserWarning, stacklevel=2)
    return _POOLS[0]
