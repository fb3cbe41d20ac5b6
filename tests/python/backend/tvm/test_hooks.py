"""The functions that kernels call are loaded before kernels, once, also if a thread assembles them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meta.backend.tvm import hooks, launcher, workspaces
from meta.cache import DiskCache


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The threads in which the functions were loaded."""
    threads: list[str] = []
    monkeypatch.setattr(launcher, "prepare", lambda: threads.append(threading.current_thread().name))
    monkeypatch.setattr(workspaces, "prepare", lambda: None)
    hooks.prepare.cache_clear()
    yield threads
    hooks.prepare.cache_clear()


def test_a_thread_loads_them_once(calls: list[str]) -> None:
    for _ in range(2):
        with hooks.prepared_meanwhile():
            pass
        assert calls == ["meta hooks"]
    hooks.prepare()
    assert len(calls) == 1


def test_they_are_loaded_although_the_block_fails(calls: list[str]) -> None:
    with pytest.raises(ValueError, match="no kernel"), hooks.prepared_meanwhile():
        raise ValueError("no kernel")
    assert calls == ["meta hooks"]


def test_a_failure_of_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(workspaces, "prepare", fail)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(MemoryError), hooks.prepared_meanwhile():
        pass


def test_kernels_run_without_space_for_the_functions(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(workspaces, "prepare", fail)
    errors: list[OSError] = []

    def report(_: DiskCache, error: OSError) -> None:
        errors.append(error)

    monkeypatch.setattr(DiskCache, "report", report)
    hooks.prepare()
    assert [error.errno for error in errors] == [errno.ENOSPC]


def test_an_empty_cache_gets_one_library_of_functions(tmp_path: Path) -> None:
    program = "import meta; meta.exp(meta.array([1.0])).numpy()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "META_CACHE_DIR": str(tmp_path)}, check=True)
    assert sorted(path.name.partition("_")[0] for path in tmp_path.glob("*/*.so")) == ["exp", "functions"]
