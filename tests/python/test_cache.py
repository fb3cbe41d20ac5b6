"""The on-disk cache returns stored payloads and rejects all other files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meta import cache
from meta.cache import CacheWarning, DiskCache


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def test_reads_stored_payloads(disk: DiskCache) -> None:
    for payload in (b"", b"x", os.urandom(100_000)):
        path = disk.put("key", payload, ".so")
        assert path is not None
        assert path == disk.get("key", ".so") == disk.path("key", ".so")
        assert disk.read("key", ".so") == payload
        assert path.read_bytes().startswith(payload)


def test_returns_none_for_missing_entries(disk: DiskCache) -> None:
    assert disk.get("nothing") is None
    assert disk.read("nothing") is None
    disk.remove("nothing")
    disk.put("here", b"x", ".a")
    assert disk.read("here", ".b") is None
    disk.remove("here", ".a")
    assert disk.read("here", ".a") is None


@pytest.mark.parametrize("key", ["", "a/b", "../a", "a b", "x" * 129, "ä"])
def test_rejects_keys_that_are_not_file_names(disk: DiskCache, key: str) -> None:
    with pytest.raises(ValueError, match="only letters, digits"):
        disk.put(key, b"x")
    with pytest.raises(ValueError, match="only letters, digits"):
        disk.read("a", key + "/")


@pytest.mark.parametrize("length", [0, 1, 15, 47, 79, 80, 100, 379])
def test_removes_truncated_entries(disk: DiskCache, length: int) -> None:
    path = disk.put("key", os.urandom(300))
    assert path is not None
    path.write_bytes(path.read_bytes()[:length])
    assert disk.get("key") is None
    assert not path.exists()


def test_removes_entries_with_a_changed_byte(disk: DiskCache) -> None:
    path = disk.put("key", b"some payload")
    assert path is not None
    good = path.read_bytes()
    for i in range(len(good)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert disk.read("key") is None, f"byte {i}"
        assert not path.exists()


def test_removes_renamed_entries(disk: DiskCache) -> None:
    path = disk.put("key", b"payload")
    assert path is not None
    other = disk.path("kez")
    path.rename(other)
    assert disk.read("kez") is None
    assert not other.exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX file modes")
def test_removes_entries_that_others_can_write(disk: DiskCache) -> None:
    path = disk.put("key", b"payload")
    assert path is not None
    path.chmod(0o666)
    assert disk.read("key") is None
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX file modes")
def test_creates_a_private_directory(disk: DiskCache) -> None:
    disk.put("key", b"payload")
    assert disk.directory.stat().st_mode & 0o077 == 0


def test_evicts_the_least_recently_used_entries(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, max_bytes=40_960)  # five entries of two blocks
    old = time.time() - 1000
    for i in range(5):
        path = disk.put(f"k{i}", b"x" * 8000)
        assert path is not None
        os.utime(path, (old + i, old + i))
    disk.put("k5", b"x" * 8000)
    assert [i for i in range(6) if disk.read(f"k{i}") is not None] == [2, 3, 4, 5]


def run_processes(code: str, directory: Path, letters: str) -> None:
    """Run the code in a process for each letter, all at the same time."""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(directory), letter], stderr=subprocess.PIPE, text=True)
        for letter in letters
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_the_bound_holds_while_processes_write(tmp_path: Path) -> None:
    run_processes(_FILLER, tmp_path, "abc")
    # What a process writes between the listing and the new sum of another is the slack.
    assert DiskCache(tmp_path).size() <= 400_000 + 3 * 5000


_FILLER = """
import sys
from pathlib import Path
from meta.cache import DiskCache
disk = DiskCache(Path(sys.argv[1]), max_bytes=400_000)
for i in range(200):
    assert disk.put(f"{sys.argv[2]}{i}", bytes(5000))
"""


def test_the_sum_of_sizes_follows_replaced_and_removed_entries(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, max_bytes=10 * 4096)
    disk.put("kept", b"x")
    for i in range(100):
        disk.put("replaced", bytes([i]))
    assert disk.read("kept") == b"x"
    (tmp_path / "blocks").unlink()
    assert disk.put("again", b"y")
    assert (tmp_path / "blocks").stat().st_size == 3


def test_storing_does_not_list_the_directory(disk: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.put("first", b"x")  # counts what is there

    def refuse(path: object) -> None:
        raise AssertionError(f"{path} is listed")

    monkeypatch.setattr(os, "scandir", refuse)
    for i in range(20):
        assert disk.put(f"k{i}", b"x" * 5000)


def test_reading_updates_the_time_of_use(disk: DiskCache) -> None:
    path = disk.put("key", b"x")
    assert path is not None
    os.utime(path, (1, 1))
    disk.get("key")
    assert time.time() - path.stat().st_mtime < 100


def test_eviction_removes_orphaned_temporary_files(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, max_bytes=40_960)
    path = disk.put("key", b"x")
    assert path is not None
    stale, fresh = path.parent / ".tmp-stale", path.parent / ".tmp-fresh"
    for file in (stale, fresh):
        file.write_bytes(b"part")
    os.utime(stale, (1, 1))
    for i in range(5):
        assert stale.exists()
        disk.put(f"k{i}", b"x" * 8000)
    assert not stale.exists()
    assert fresh.exists()
    assert disk.read("k4") == b"x" * 8000


def test_misses_in_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    disk = DiskCache(tmp_path / "file")
    with pytest.warns(CacheWarning, match=r"file is not a directory; .* set META_CACHE_DIR"):
        assert disk.put("key", b"x") is None
    assert disk.put("key", b"x") is None  # warns once
    assert disk.read("key") is None
    assert disk.size() == 0


def test_reads_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("META_CACHE_SIZE", "3")
    monkeypatch.delenv("META_CACHE", raising=False)
    assert cache.default_cache() == DiskCache(tmp_path, 3 << 20)
    monkeypatch.setenv("META_CACHE_SIZE", "")
    assert cache.default_max_bytes() == 1 << 30
    for text in ("-1", "0", "many", "9" * 5000):
        monkeypatch.setenv("META_CACHE_SIZE", text)
        with pytest.warns(CacheWarning, match="is not a number of MiB from 1 to 999999999999; 1024 is used"):
            assert cache.default_max_bytes() == 1 << 30
    monkeypatch.delenv("META_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if sys.platform.startswith("linux"):
        assert cache.default_directory() == tmp_path / ".cache" / "meta-tvm"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
        assert cache.default_directory() == tmp_path / "elsewhere" / "meta-tvm"
    assert cache.default_directory().name == "meta-tvm"
    monkeypatch.setenv("META_CACHE", "0")
    assert cache.default_cache() is None


_WORKER = """
import sys
from pathlib import Path
from meta.cache import DiskCache
disk = DiskCache(Path(sys.argv[1]), max_bytes=200_000)
me = sys.argv[2].encode()
for round in range(150):
    key = f"k{round % 7}"
    disk.put(key, me * (1000 + round), ".so")
    seen = disk.read(key, ".so")
    assert seen is None or (len(set(seen)) == 1 and 1000 <= len(seen) < 1150), (key, seen)
"""


def test_processes_share_a_directory(tmp_path: Path) -> None:
    run_processes(_WORKER, tmp_path, "abcd")
    disk = DiskCache(tmp_path)
    assert all(disk.read(f"k{i}", ".so") for i in range(7))
    assert not list(tmp_path.rglob(".tmp-*"))


_BUILDER = """
import sys, time
from pathlib import Path
from meta.cache import DiskCache
disk, key = DiskCache(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with disk.building(key):
    if disk.read(key) is None:
        time.sleep(float(sys.argv[3]))
        disk.put(key, b"x")
        print("built", flush=True)
"""


def start_builder(directory: Path, key: str, seconds: float = 0.5) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _BUILDER, str(directory), key, str(seconds)]
    builder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    assert builder.stdout.readline() == "ready\n"
    return builder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="locks of open files are Linux's")
def test_one_of_several_processes_builds_an_entry(tmp_path: Path) -> None:
    builders = [start_builder(tmp_path, key) for key in ("same", "same", "same", "other")]
    for builder in builders:
        assert builder.stdin is not None
        builder.stdin.write("\n")
        builder.stdin.flush()
    assert sorted(builder.communicate(timeout=60)[0] for builder in builders) == ["", "", "built\n", "built\n"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="locks of open files are Linux's")
def test_waiting_ends_when_the_builder_dies_or_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, builder = DiskCache(tmp_path), start_builder(tmp_path, "key", 60.0)
    assert builder.stdin is not None
    builder.stdin.write("\n")
    builder.stdin.flush()
    monkeypatch.setattr(cache, "_WAIT", 0.1)
    while not (tmp_path / "locks").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    start = time.monotonic()
    with disk.building("key"):
        assert time.monotonic() - start >= 0.1
    monkeypatch.setattr(cache, "_WAIT", 60.0)
    builder.kill()
    with disk.building("key"), disk.building("another"):
        assert time.monotonic() - start < 30
    builder.communicate(timeout=60)


def test_entries_are_built_without_a_lock_where_it_fails(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    disk = DiskCache(tmp_path)
    with disk.building("key"):
        assert disk.put("key", b"x") is not None
