"""Entries are loaded as code: the cache uses no directory and no file that others can change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meta import cache, folders
from meta.cache import CacheWarning, DiskCache

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners and modes")
_OTHER = 54321


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Gives a file to another user. Without the permission, the process pretends to be another user, so that all files
    are foreign."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, _OTHER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: _OTHER)

    return give


def _refused(disk: DiskCache, reason: str) -> None:
    with pytest.warns(CacheWarning, match=reason):
        assert disk.read("key", ".so") is None
    assert disk.get("key", ".so") is None
    assert disk.put("key", b"new", ".so") is None
    with disk.library("key", ".so") as library:
        assert library is None


@pytest.mark.parametrize("above", [0, 1, 2])
def test_refuses_directories_of_others(tmp_path: Path, give_away: Callable[[Path], None], above: int) -> None:
    disk = DiskCache(tmp_path / "a" / "b" / "cache")
    assert disk.put("key", b"x", ".so")
    give_away([disk.directory, *disk.directory.parents][above])
    _refused(disk, "belongs to user")


def test_refuses_buckets_of_others(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    disk = DiskCache(tmp_path / "cache")
    path = disk.put("key", b"x", ".so")
    assert path
    give_away(path.parent)
    _refused(disk, "belongs to user")


@pytest.mark.parametrize("above", [0, 1])
def test_refuses_directories_that_others_can_write(tmp_path: Path, above: int) -> None:
    disk = DiskCache(tmp_path / "a" / "cache")
    assert disk.put("key", b"x", ".so")
    [disk.directory, *disk.directory.parents][above].chmod(0o777)
    _refused(disk, "others can write to .* \\(mode 777\\)")


def test_shared_directories_above_need_the_sticky_bit(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    disk = DiskCache(tmp_path / "shared" / "cache")
    assert disk.put("key", b"x", ".so")
    assert disk.read("key", ".so") == b"x"
    _refused(DiskCache(tmp_path / "shared"), "others can write")


def test_groups_of_one_user_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = DiskCache(tmp_path / "cache")
    assert disk.put("key", b"x", ".so")
    disk.directory.chmod(0o770)
    monkeypatch.setattr(folders, "_is_own_group", lambda gid, uid: True)
    assert disk.read("key", ".so") == b"x"
    monkeypatch.setattr(folders, "_is_own_group", lambda gid, uid: False)
    _refused(disk, "others can write")


def test_follows_links_of_this_user_alone(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    disk = DiskCache(tmp_path / "disk" / "cache")
    assert disk.put("key", b"x", ".so")
    (tmp_path / "link").symlink_to("disk/../disk")
    linked = DiskCache(tmp_path / "link" / "cache")
    assert linked.read("key", ".so") == b"x"
    give_away(tmp_path / "link")
    _refused(linked, "belongs to user")


def test_circular_links_are_no_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    _refused(DiskCache(tmp_path / "link"), "too many symbolic links")


@pytest.mark.parametrize("kind", ["link", "fifo", "file of another user", "directory"])
def test_entries_are_regular_files_of_this_user(tmp_path: Path, give_away: Callable[[Path], None], kind: str) -> None:
    disk = DiskCache(tmp_path / "cache")
    path = disk.put("key", b"x", ".so")
    assert path
    if kind == "file of another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        give_away(path)
    else:
        path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    if kind == "fifo":
        os.mkfifo(path, 0o600)  # a reader would wait
    if kind == "directory":
        path.mkdir(0o700)
    with disk.library("key", ".so") as library:
        assert library is None
    assert disk.read("key", ".so") is None
    assert os.path.lexists(path) == (kind == "directory")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_libraries_open_through_the_checked_directory(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / "cache")
    assert disk.put("key", b"checked", ".so")
    with disk.library("key", ".so") as library:
        assert library is not None
        disk.directory.rename(tmp_path / "moved")
        (tmp_path / "cache" / "ke").mkdir(parents=True)
        (tmp_path / "cache" / "ke" / "key.so").write_bytes(b"replaced")
        assert Path(library).read_bytes().startswith(b"checked")


_PROGRAM = """
import sys
import numpy as np
import meta
assert meta.tanh(meta.array(np.zeros(3, "float32"))).tolist() == [0.0, 0.0, 0.0]
"""


def test_operators_run_without_a_trusted_cache(tmp_path: Path) -> None:
    # Entries of a directory that others can write to are valid, but might be theirs.
    environment = {**os.environ, "META_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("META_CACHE", None)

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, check=True, capture_output=True, text=True
        ).stderr

    assert run() == ""
    (tmp_path / "cache").chmod(0o777)
    before = sorted((tmp_path / "cache").rglob("*"))
    assert run().count("CacheWarning: the kernel cache in") == 1
    assert sorted((tmp_path / "cache").rglob("*")) == before
