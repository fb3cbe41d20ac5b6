"""Locks that are held across a fork, so that the child finds them free and what they guard complete.

A child has the forking thread only: a lock that another thread held would stay locked in it for ever. `os.fork`
therefore waits until no other thread compiles, imports implementations or changes a table, and both processes then
release the locks. Processes started with `subprocess` or with the start method "spawn" do not need this.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Final
from weakref import ref

_ORDER: Final = (
    "program",  # tracing and compiling for one executor
    "relay parser",
    "gradients",
    "operators of torch",
    "plugins",
    "kernel libraries",
    "executables",
    "kernels",
    "launcher",
    "operators of TVM",
    "dialects",
    "implementations",
    "runners",
    "random",
    "types",
    "parts",
    "assembly",
    "scopes",
    "constants",
    "modules of TVM",
)
"""The things that locks guard, in the order in which a thread may take several of them; a fork takes them in this
order."""

_PACKAGES: Final = frozenset(
    ("meta", "tvm", "tvm_ffi", "numpy", "ml_dtypes", "torch", "lark", "opt_einsum", "platformdirs")
)
"""Packages that meta imports at their first use, with itself."""

_locks: Final[dict[str, list[ref[Any]]]] = {guarded: [] for guarded in _ORDER}
"""The locks, and references to some that are gone. No WeakSet: in its callbacks Python ignores an interrupt."""
_adding = threading.RLock()
_held: list[Any] = []


def new_lock(guarded: str) -> threading.RLock:
    """A reentrant lock that forks wait for. guarded: what it guards, one of `_ORDER`.

    Raises KeyError for anything else."""
    lock = threading.RLock()
    with _adding:
        _locks[guarded] = [each for each in _locks[guarded] if each() is not None] + [ref(lock)]
    return lock


def _acquire() -> None:
    import_seconds = 60.0  # How long a fork waits for imports, which this package cannot hold up.
    latest = time.monotonic() + import_seconds
    while True:
        _acquire_locks()
        if not _others_import() or time.monotonic() > latest:
            return
        _release()  # the imports may need the locks
        time.sleep(0.001)


def _acquire_locks() -> None:
    with _adding:
        locks = [lock for guarded in _ORDER for each in _locks[guarded] if (lock := each()) is not None]
    for lock in (*locks, _adding):
        lock.acquire()
        _held.append(lock)


def _others_import() -> bool:
    """Whether another thread imports one of the packages: Python's locks of modules do not outlast a fork either."""
    locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    owners = [getattr(ref(), "owner", None) for name, ref in list(locks.items()) if name.split(".")[0] in _PACKAGES]
    return any(owner not in (None, threading.get_ident()) for owner in owners)


def _release() -> None:
    while _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
