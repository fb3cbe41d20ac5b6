"""Failures of the cache, of the disk and of the environment do not stop the work: kernels are compiled in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meta import cache
from meta.cache import CacheWarning, DiskCache

_PROGRAM = """
import numpy as np
import meta
assert meta.tanh(meta.array(np.zeros(3, "float32"))).tolist() == [0.0, 0.0, 0.0]
print("done")
"""


def _run(code: str = _PROGRAM, prefix: tuple[str, ...] = (), **variables: str) -> str:
    """The standard error of a process that runs an operator to its end."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("META_", "XDG_"))}
    process = subprocess.run(
        [*prefix, sys.executable, "-c", code], env={**environment, **variables}, capture_output=True, text=True
    )
    assert process.stdout == "done\n", process.stderr
    assert process.returncode == 0
    return process.stderr


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_warned", set())


def test_users_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("META_CACHE", raising=False)
    monkeypatch.delenv("META_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/meta-tvm"))
    with pytest.warns(CacheWarning, match="off: this user has no home directory; set META_CACHE_DIR to a directory"):
        assert cache.default_cache() is None
    assert cache.default_cache() is None  # warns once
    assert cache.describe() == "off: this user has no home directory"


def test_invalid_settings() -> None:
    text = _run(META_CACHE_DIR="~nosuchuser/cache", META_CACHE_SIZE="9" * 5000)
    assert text.count("CacheWarning") == 1
    assert "off: META_CACHE_DIR='~nosuchuser/cache' names no home directory" in text


def test_nothing_is_written_to_the_temporary_directory(tmp_path: Path) -> None:
    folder = str(tmp_path / "missing")
    assert _run(META_CACHE_DIR=str(tmp_path / "cache"), TMPDIR=folder, TEMP=folder, TMP=folder) == ""
    assert list((tmp_path / "cache").rglob("*.so"))
    assert not list((tmp_path / "cache" / "work").iterdir())


def _can_mount() -> bool:
    return (
        sys.platform.startswith("linux")
        and os.geteuid() == 0
        and shutil.which("unshare") is not None
        and subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode
        == 0
    )


@pytest.mark.skipif(not _can_mount(), reason="needs the right to mount a small file system")
@pytest.mark.parametrize("linker", [True, False])
def test_a_full_disk(tmp_path: Path, linker: bool) -> None:
    (tmp_path / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=8k,mode=700 none "$0" && exec "$@"'
    code = _PROGRAM if linker else f"from meta.backend.tvm import library\nlibrary.linker = lambda: None\n{_PROGRAM}"
    prefix = ("unshare", "-m", "sh", "-c", mount, str(tmp_path / "disk"))
    text = _run(code, prefix, META_CACHE_DIR=str(tmp_path / "disk"), TMPDIR=str(tmp_path / "disk"))
    assert text.count("CacheWarning") == 1
    assert "off: no space left on device" in text


def test_systems_without_files_in_memory_need_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meta.backend.tvm import library

    monkeypatch.delattr(os, "memfd_create", raising=False)
    with library._output_file(tmp_path / "lib0.o") as path:
        assert path == tmp_path / "lib0.o"
        assert not path.is_symlink()
    monkeypatch.setattr(library, "_SPACE", 1 << 60)
    with pytest.raises(OSError, match="No space left"), library._output_file(tmp_path / "lib0.o"):
        pass


def test_workspaces_of_dead_processes_are_removed(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "cache")
    with disk.workspace() as used:
        host = used.name.partition("@")[2]
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        names = [f"{dead.pid}-left@{host}", "1-old@elsewhere", "1-new@elsewhere", f"{os.getpid()}-mine@{host}"]
        for name in names:
            (used.parent / name).mkdir()
            (used.parent / name / "module.so").write_bytes(b"part")
        os.utime(used.parent / names[1], (1, 1))
        with disk.workspace():
            pass
        assert sorted(path.name for path in used.parent.iterdir()) == sorted([used.name, *names[2:]])
    assert not used.exists()


def test_a_process_killed_while_it_links_leaves_nothing(tmp_path: Path) -> None:
    code = f"from meta.backend.tvm import library\nimport os\nlibrary._link = lambda *_: os._exit(3)\n{_PROGRAM}"
    environment = {**os.environ, "META_CACHE_DIR": str(tmp_path / "cache")}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 3
    assert len(list((tmp_path / "cache" / "work").iterdir())) == 1
    assert _run(META_CACHE_DIR=str(tmp_path / "cache")) == ""
    assert not list((tmp_path / "cache" / "work").iterdir())


def test_the_command_line_shows_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from meta.cli import env

    def shown() -> str:
        assert env.run(None) == 0  # pyright: ignore[reportArgumentType]
        return capsys.readouterr().out.split("kernel cache\n  ")[1].splitlines()[0]

    monkeypatch.delenv("META_CACHE", raising=False)
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))
    DiskCache(tmp_path / "cache").put("key", bytes(1 << 20))
    assert shown() == f"{tmp_path / 'cache'}, 1.0 of 1024 MiB"
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "file"))
    assert shown() == f"off: {tmp_path / 'file'} is not a directory"
    monkeypatch.setenv("META_CACHE_DIR", "~nosuchuser")
    assert shown() == "off: META_CACHE_DIR='~nosuchuser' names no home directory"
    monkeypatch.setenv("META_CACHE", "0")
    assert shown() == "off: META_CACHE is 0"


@pytest.mark.parametrize("size", [0, 4096, 1 << 20])
def test_files_that_may_not_grow(tmp_path: Path, size: int) -> None:
    """LLVM ends the process when a write fails, as one beyond RLIMIT_FSIZE does."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))\n"
    assert "file too large" in _run(limit + _PROGRAM, META_CACHE_DIR=str(tmp_path)).lower()
