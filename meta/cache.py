"""A bounded on-disk cache of byte strings that tolerates crashes, corruption and concurrent processes.

Each entry is one file (`meta.folders`). Readers need no lock. Truncated, altered or renamed files and files of
other users are removed, not used. The cache never evaluates its contents.

**Trust.** Entries are loaded as code, so whoever can write them can run code as this user. The directory, every
directory above it and every entry must therefore be private: owned by this user or root, and not writable by others
(`meta.folders` checks it whenever the directory is opened). Otherwise the cache is off. The checksum finds damage, not
malice: entries have no signature, because whoever can write into a private directory can also read the key or replace
this package. A directory from elsewhere (an archive, an image) is to be trusted like a program from there.

**Failures.** No failure of the cache stops the work: `get` misses and `put` returns None, kernels are compiled in
memory, and one CacheWarning a process says why (`python -m meta env` too).

**The bound.** The length of the file `blocks` is the sum of the sizes of the entries, in blocks of 4 KiB: each `put`
appends that many bytes, which is atomic, and only when the sum exceeds the bound is the directory listed, the least
recently used entries deleted and the length set to what remains. The cost of a `put` does not depend on the number of
entries. Replaced and removed entries count until then, so the sum is rarely too small: by what other processes write in
the moment between listing and setting the length. docs/semantics.md lists the environment variables.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import time
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Final

from meta.files.atomic import has_ended
from meta.folders import TEMPORARY, Folder, encoded, exclusive, files, opened, read_verified, write_atomically
from meta.records import record

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ORPHAN_AFTER: Final = 3600.0  # seconds; older than this, a file being written belongs to a process that died
_BLOCK: Final = 4096  # bytes; what a small file takes on most file systems
_COUNTER: Final = "blocks"
_WORKSPACES: Final = "work"
_LOCKS: Final = "locks"
_WAIT: Final = 60.0  # seconds for which a process waits for another one that builds the same entry


class CacheWarning(UserWarning):
    """The on-disk cache is off, in whole or in part; the text says why."""


def default_directory() -> Path:
    """The cache directory by the environment.

    Raises:
        OSError: there is no such home directory.
    """
    directory = os.environ.get("META_CACHE_DIR")
    if directory:
        try:
            return Path(directory).expanduser()
        except RuntimeError as error:
            raise FileNotFoundError(f"META_CACHE_DIR={directory!r} names no home directory") from error
    from platformdirs import user_cache_path

    path = user_cache_path("meta-tvm", appauthor=False)
    if not path.is_absolute():
        raise FileNotFoundError("this user has no home directory")
    return path


def enabled() -> bool:
    """Whether the environment allows an on-disk cache."""
    return os.environ.get("META_CACHE", "1").strip().lower() not in ("0", "off", "false", "no")


def default_max_bytes() -> int:
    """The bound on the size of the cache in bytes. An invalid `META_CACHE_SIZE` is ignored, with a CacheWarning."""
    default_mebibytes = 1024
    text = os.environ.get("META_CACHE_SIZE", "").strip()
    if not text:
        return default_mebibytes << 20
    if not text.isdecimal() or len(text) > 12 or int(text) == 0:
        value = text if len(text) <= 20 else text[:17] + "..."
        problem = f"META_CACHE_SIZE={value!r} is not a number of MiB from 1 to 999999999999"
        _warn(problem, f"{problem}; {default_mebibytes} is used")
        return default_mebibytes << 20
    return int(text) << 20


def default_max_kernels() -> int:
    """The bound on the number of kernels in memory. An invalid `META_KERNELS` is ignored, with a CacheWarning."""
    default_kernels = 1024
    text = os.environ.get("META_KERNELS", "").strip()
    if not text:
        return default_kernels
    if not text.isdecimal() or len(text) > 12 or int(text) < 2:
        value = text if len(text) <= 20 else text[:17] + "..."
        problem = f"META_KERNELS={value!r} is not a number of kernels from 2 to 999999999999"
        _warn(problem, f"{problem}; {default_kernels} is used")
        return default_kernels
    return int(text)


@record
class DiskCache:
    """A directory of entries named `<key><suffix>`; beyond `max_bytes` the least recently used are evicted.

    If the file system fails (no space, no permission, a read-only directory), or others can change the directory, `get`
    misses and `put` returns None, so that the work continues without a cache; the first failure warns.
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
        with self.library(key, suffix) as library:
            return None if library is None else self.path(key, suffix)

    def read(self, key: str, suffix: str = "") -> bytes | None:
        """The payload of a verified entry, or None. A bad entry is removed."""
        path = self.path(key, suffix)
        with self._bucket(path) as bucket:
            return None if bucket is None else read_verified(bucket, path.name)

    @contextlib.contextmanager
    def library(self, key: str, suffix: str) -> Generator[str | None, None, None]:
        """The path by which a loader opens a verified entry, for as long as the context lasts; None if there is none.

        On Linux it leads through the descriptor of the checked directory."""
        path = self.path(key, suffix)
        with self._bucket(path) as bucket:
            verified = bucket is not None and read_verified(bucket, path.name) is not None
            yield bucket.library(path.name) if bucket is not None and verified else None

    def put(self, key: str, payload: bytes, suffix: str = "") -> Path | None:
        """Store `payload`, replacing an existing entry; returns its path, or None if storing failed."""
        path = self.path(key, suffix)
        blob = encoded(payload, path.name)
        try:
            with opened(self.directory, create=True) as folder:
                total = _add_to_total(folder, len(blob))
                with folder.subfolder(path.parent.name, create=True) as bucket:
                    write_atomically(bucket, path.name, blob)
                if total is None or total > self.max_bytes:
                    self._evict(folder)
        except OSError as error:
            self.report(error)
            return None
        return path

    def reserve(self, key: str, suffix: str = "") -> Path | None:
        """The path of an entry that a library writes by itself, in a directory that exists; None if that fails."""
        path = self.path(key, suffix)
        try:
            with opened(self.directory, create=True) as folder, folder.subfolder(path.parent.name, create=True):
                return path
        except OSError as error:
            self.report(error)
            return None

    @contextlib.contextmanager
    def building(self, key: str) -> Generator[None, None, None]:
        """Build the entries of `key` inside: other processes that come here with the same key wait for up to a minute,
        then look for the entries again. So ranks of one program, started together, compile it once.

        Only speed depends on it: if the lock fails, several processes build the same entries."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError), opened(self.directory, create=True) as folder:
                stack.enter_context(exclusive(folder, _LOCKS, key, _WAIT))
            yield

    def remove(self, key: str, suffix: str = "") -> None:
        """Remove the entry, if it exists."""
        path = self.path(key, suffix)
        with self._bucket(path) as bucket:
            if bucket is not None:
                bucket.remove(path.name)

    @contextlib.contextmanager
    def workspace(self) -> Generator[Path, None, None]:
        """A new private folder, removed at the end. Folders of processes that died are removed by the next one.

        Raises:
            OSError: it cannot be created.
        """
        name = f"{os.getpid()}-{secrets.token_hex(8)}@{socket.gethostname()}"
        with opened(self.directory, create=True) as folder, folder.subfolder(_WORKSPACES, create=True) as work:
            for entry in work.entries():
                if _is_abandoned(entry):
                    shutil.rmtree(work.path / entry.name, ignore_errors=True)
            with work.subfolder(name, create=True) as created:
                path = created.path
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _evict(self, folder: Folder) -> None:
        """Delete orphaned temporary files and, beyond `max_bytes`, the least recently used entries."""
        counter = folder.open_file(_COUNTER, os.O_WRONLY | os.O_CREAT)
        try:
            before = os.fstat(counter).st_size
            bytes_left = self._delete_oldest(folder)
            written_meanwhile = os.fstat(counter).st_size - before
            os.ftruncate(counter, bytes_left + max(written_meanwhile, 0))
        finally:
            os.close(counter)

    def _delete_oldest(self, folder: Folder) -> int:
        """Delete what the bound leaves no room for; returns the blocks of the entries that remain."""
        keep = 0.8  # fraction of the bound that an eviction keeps, so that not every write evicts
        entries: list[tuple[float, int, str, str]] = []
        now = time.time()
        for bucket, name, stat in files(folder):
            if not name.startswith(TEMPORARY):
                entries.append((stat.st_mtime, _blocks(stat.st_size), bucket.path.name, name))
            elif now - stat.st_mtime > _ORPHAN_AFTER:
                bucket.remove(name)
        total = sum(blocks for _, blocks, _, _ in entries)
        if total * _BLOCK <= self.max_bytes:
            return total
        for _, blocks, place, name in sorted(entries):
            if total * _BLOCK <= self.max_bytes * keep:
                break
            with contextlib.suppress(OSError), folder.subfolder(place) as bucket:
                bucket.remove(name)
                total -= blocks
        return total

    def size(self) -> int:
        """The total size of the entries in bytes."""
        with contextlib.suppress(OSError), opened(self.directory) as folder:
            return sum(stat.st_size for _, name, stat in files(folder) if not name.startswith(TEMPORARY))
        return 0

    def report(self, error: OSError) -> None:
        """Warn, once in a process, of a failure to use this directory."""
        _warn(
            str(self.directory),
            f"the kernel cache in {self.directory} is off: {_reason(error)}; expected a directory that you own, that "
            "others cannot write to, with space; set META_CACHE_DIR to one, or META_CACHE=0",
        )

    def failure(self) -> str | None:
        """Why nothing can be stored, None if it can."""
        try:
            with self.workspace():
                return None
        except OSError as error:
            return _reason(error)

    @contextlib.contextmanager
    def _bucket(self, path: Path) -> Generator[Folder | None, None, None]:
        """The folder of an entry; None if it does not exist, or (with a warning) if it is not private."""
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(opened(self.directory))
                bucket = stack.enter_context(folder.subfolder(path.parent.name))
            except FileNotFoundError:
                bucket = None
            except OSError as error:
                self.report(error)
                bucket = None
            yield bucket


def default_cache() -> DiskCache | None:
    """The cache by the environment; None if it is disabled or, with a CacheWarning, if there is no home directory."""
    if not enabled():
        return None
    try:
        return DiskCache(default_directory(), default_max_bytes())
    except OSError as error:
        _warn("home", f"the kernel cache is off: {_reason(error)}; set META_CACHE_DIR to a directory that you own")
        return None


def describe() -> str:
    """The state of the cache by the environment, in one line."""
    if not enabled():
        return "off: META_CACHE is 0"
    try:
        cache = DiskCache(default_directory(), default_max_bytes())
    except OSError as error:
        return f"off: {_reason(error)}"
    failure = cache.failure()
    if failure:
        return f"off: {failure}"
    return f"{cache.directory}, {cache.size() / (1 << 20):.1f} of {cache.max_bytes >> 20} MiB"


_warned: set[str] = set()


def _warn(subject: str, text: str) -> None:
    """Warn once in a process of each subject."""
    if subject not in _warned:
        _warned.add(subject)
        warnings.warn(text, CacheWarning, stacklevel=3)


def _reason(error: OSError) -> str:
    return error.strerror.lower() + (f": {error.filename}" if error.filename else "") if error.strerror else str(error)


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _add_to_total(folder: Folder, size: int) -> int | None:
    """Count an entry; returns the bytes of all entries, None if they have not been counted."""
    try:
        counter = folder.open_file(_COUNTER, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return None
    try:
        os.write(counter, b"." * _blocks(size))
        return os.fstat(counter).st_size * _BLOCK
    finally:
        os.close(counter)


def _is_abandoned(workspace: os.DirEntry[str]) -> bool:
    """Whether the process that made a workspace has died; on other machines, whether that is likely."""
    pid, _, rest = workspace.name.partition("-")
    if rest.partition("@")[2] == socket.gethostname() and has_ended(pid):
        return True
    with contextlib.suppress(OSError):
        return time.time() - workspace.stat(follow_symlinks=False).st_mtime > _ORPHAN_AFTER
    return False
