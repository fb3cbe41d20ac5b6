"""A bounded on-disk cache of byte strings that tolerates crashes, corruption and concurrent processes.

Each entry is one file: the payload, then a trailer with the entry's key and a checksum over both. The payload comes
first so that a shared library loads directly from the cache (loaders ignore bytes after the last section). Files are
written under a temporary name and renamed, so readers need no lock. Truncated, altered or renamed files and files of
other users are removed, not used. The cache never evaluates its contents.

Environment: `META_CACHE_DIR` names the directory (default: meta-tvm in the user's cache folder, `~/.cache` on Linux).
`META_CACHE=0` disables the cache, `META_CACHE_SIZE` bounds it in MiB (default 1024).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = b"meta-cache-1\n\0\0\0"
_DIGEST: Final = hashlib.sha256().digest_size
_TRAILER: Final = 2 * _DIGEST + len(_MAGIC)
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TOUCH_AFTER: Final = 3600.0  # seconds; a finer order of last use would cost a system call on every hit
_ORPHAN_AFTER: Final = 3600.0  # seconds; older than this, a file being written belongs to a process that died
_KEEP: Final = 0.8  # fraction of the bound that an eviction keeps, so that not every write evicts


def default_directory() -> Path:
    """The cache directory by the environment."""
    directory = os.environ.get("META_CACHE_DIR")
    if directory:
        return Path(directory).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("meta-tvm", appauthor=False)


def enabled() -> bool:
    """Whether the environment allows an on-disk cache."""
    return os.environ.get("META_CACHE", "1").strip().lower() not in ("0", "off", "false", "no")


def default_max_bytes() -> int:
    """The bound on the size of the cache in bytes; invalid values of `META_CACHE_SIZE` are ignored."""
    text = os.environ.get("META_CACHE_SIZE", "").strip()
    mebibytes = int(text) if text.isdecimal() and int(text) > 0 else 1024
    return mebibytes << 20


@dataclass(frozen=True, slots=True)
class DiskCache:
    """A directory of entries named `<key><suffix>`; beyond `max_bytes` the least recently used are evicted.

    If the file system fails (no space, no permission, a read-only directory), `get` misses and `put` returns None, so
    that the work continues without a cache.
    """

    directory: Path
    max_bytes: int = 1 << 30

    def path(self, key: str, suffix: str = "") -> Path:
        """The path of an entry, existing or not.

        Raises:
            ValueError: `key` or `suffix` has characters other than letters, digits, `_`, `.` and `-`.
        """
        if not _KEY.fullmatch(key) or (suffix and not _KEY.fullmatch(suffix)):
            raise ValueError(
                f"cache key {key + suffix!r}: only letters, digits, '_', '.' and '-' are allowed, 1 to 128"
            )
        return self.directory / key[:2] / (key + suffix)

    def get(self, key: str, suffix: str = "") -> Path | None:
        """The path of a verified entry, or None. A bad entry is removed."""
        path = self.path(key, suffix)
        return path if self._read_verified(path) is not None else None

    def read(self, key: str, suffix: str = "") -> bytes | None:
        """The payload of a verified entry, or None. A bad entry is removed."""
        return self._read_verified(self.path(key, suffix))

    def put(self, key: str, payload: bytes, suffix: str = "") -> Path | None:
        """Store `payload`, replacing an existing entry; returns its path, or None if storing failed."""
        path = self.path(key, suffix)
        name = hashlib.sha256(path.name.encode()).digest()
        blob = payload + name + hashlib.sha256(payload + name).digest() + _MAGIC
        try:
            _make_private_directory(self.directory)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_atomically(path, blob)
        except OSError:
            return None
        self.evict()
        return path

    def remove(self, key: str, suffix: str = "") -> None:
        """Remove the entry, if it exists."""
        _unlink(self.path(key, suffix))

    def evict(self) -> None:
        """Delete orphaned temporary files and, beyond `max_bytes`, the least recently used entries."""
        entries: list[tuple[float, int, Path]] = []
        now = time.time()
        for path, stat in self._files():
            if not path.name.startswith(".tmp-"):
                entries.append((stat.st_mtime, stat.st_size, path))
            elif now - stat.st_mtime > _ORPHAN_AFTER:
                _unlink(path)
        total = sum(size for _, size, _ in entries)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            if total <= self.max_bytes * _KEEP:
                return
            _unlink(path)
            total -= size

    def size(self) -> int:
        """The total size of the entries in bytes."""
        return sum(stat.st_size for path, stat in self._files() if not path.name.startswith(".tmp-"))

    def clear(self) -> None:
        """Delete every entry; other files in the directory stay."""
        for path, _ in self._files():
            _unlink(path)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The files in the subfolders of entries; files that vanish meanwhile are skipped."""
        for bucket in _scan(self.directory):
            if not bucket.is_dir(follow_symlinks=False) or len(bucket.name) > 2:
                continue
            for entry in _scan(Path(bucket.path)):
                with contextlib.suppress(OSError):
                    if entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _read_verified(self, path: Path) -> bytes | None:
        """The payload of a file, or None; an invalid file is removed, and the time of use is updated."""
        try:
            with open(path, "rb") as file:
                stat = os.fstat(file.fileno())
                blob = file.read()
        except OSError:
            return None
        payload = _payload(blob, path.name) if _is_trusted(stat) else None
        if payload is None:
            _unlink(path)
            return None
        if time.time() - stat.st_mtime > _TOUCH_AFTER:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload


def default_cache() -> DiskCache | None:
    """The cache by the environment, or None if it is disabled."""
    return DiskCache(default_directory(), default_max_bytes()) if enabled() else None


def _payload(blob: bytes, name: str) -> bytes | None:
    """The payload of an entry, or None if the bytes are not a valid entry of that file name."""
    if len(blob) < _TRAILER or blob[-len(_MAGIC) :] != _MAGIC:
        return None
    body, checksum = blob[: _DIGEST - _TRAILER], blob[_DIGEST - _TRAILER : -len(_MAGIC)]
    if body[-_DIGEST:] != hashlib.sha256(name.encode()).digest() or hashlib.sha256(body).digest() != checksum:
        return None
    return body[:-_DIGEST]


def _is_trusted(stat: os.stat_result) -> bool:
    """Whether only this user and root can write the file: entries may be loaded as code."""
    return not hasattr(os, "getuid") or (stat.st_uid in (os.getuid(), 0) and not stat.st_mode & 0o022)


def _make_private_directory(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_atomically(path: Path, blob: bytes) -> None:
    """Write a temporary file and rename it to `path`, so that readers see the old or the new file, never a part.

    It skips fsync: after a power cut the checksum fails and the entry is built again."""
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(blob)
        os.replace(temporary, path)
    except BaseException:
        _unlink(Path(temporary))
        raise


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
