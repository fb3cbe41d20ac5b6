"""Directories that only this user and the superuser can change, since code is loaded from them.

A directory is private if the user or root owns it and no other user can write to it, and if the same holds for every
directory above it and every symbolic link on the way. Above it, directories with the sticky bit (`/tmp`) may be
writable by all, because in them only the owner of an entry can replace it. A group may write if it is the user's own
(`alice:alice`, as systems with umask 002 set up). Access control lists count: their mask shows in the group's bits.

Paths are checked from the root down, so that a component that was checked can no longer be replaced by others. Files
are opened relative to the descriptor of the checked directory, without following links. Systems without owners in the
sense of POSIX (Windows) have none of these checks and open files by path.

A file of the cache is the payload, then a trailer: a digest of the file's name, a checksum over both, and a magic
number. The payload comes first so that a shared library loads directly from the cache (loaders ignore bytes after the
last section). Files are written under a temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
import time
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from stat import S_IRWXG, S_IRWXO, S_ISDIR, S_ISLNK, S_ISREG, S_ISVTX, S_IWGRP, S_IWOTH
from typing import Final

from meta.records import record

_HAS_OWNERS: Final = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_FILE: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)  # without O_NONBLOCK, opening a FIFO waits for its other end
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FILE
_DESCRIPTORS: Final = Path("/proc/self/fd")


class UntrustedError(OSError):
    """Others can change a file or directory, or read a secret. Its text has the path and the reason."""


@record
class Folder:
    """A private directory, for as long as `opened` has it open.

    descriptor: None where files are opened by path."""

    path: Path
    descriptor: int | None = None

    def name(self, entry: str) -> str:
        """The entry, as functions of `os` take it together with `dir_fd=self.descriptor`."""
        return entry if self.descriptor is not None else str(self.path / entry)

    def library(self, entry: str) -> str:
        """The path by which the system's loader opens an entry: through the descriptor, where there is `/proc`."""
        through = _DESCRIPTORS / str(self.descriptor)
        return str((through if self.descriptor is not None and through.exists() else self.path) / entry)

    def open_file(self, entry: str, flags: int, *, secret: bool = False) -> int:
        """A descriptor of a regular file that only this user and root can write, created with mode 0600. secret: and
        that only they can read.

        Raises:
            UntrustedError: it is a link, FIFO or device, or others can write it, or read a secret.
            OSError: it does not open.
        """
        try:
            descriptor = os.open(self.name(entry), flags | _FILE, 0o600, dir_fd=self.descriptor)
        except OSError as error:
            if self.descriptor is not None and _is_link(self, entry):
                raise UntrustedError(f"{self.path / entry} is a symbolic link") from error
            raise
        try:
            stat = os.fstat(descriptor)
            if not S_ISREG(stat.st_mode):
                raise UntrustedError(f"{self.path / entry} is not a regular file")
            _check(stat, self.path / entry)
            if secret and _HAS_OWNERS and stat.st_mode & (S_IRWXG | S_IRWXO):
                raise UntrustedError(f"others can read {self.path / entry} (mode {stat.st_mode & 0o7777:o})")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, entry: str) -> None:
        """Delete a file, if it exists and can be deleted."""
        with contextlib.suppress(OSError):
            os.unlink(self.name(entry), dir_fd=self.descriptor)

    def replace(self, source: str, target: str) -> None:
        """Rename a file, replacing `target`."""
        where = self.descriptor
        os.replace(self.name(source), self.name(target), src_dir_fd=where, dst_dir_fd=where)

    def entries(self) -> list[os.DirEntry[str]]:
        """The entries, none if they cannot be read. They are used before the folder closes."""
        try:
            with os.scandir(self.path if self.descriptor is None else self.descriptor) as entries:
                return list(entries)
        except OSError:
            return []

    @contextlib.contextmanager
    def subfolder(self, entry: str, *, create: bool = False) -> Generator[Folder, None, None]:
        """A directory in this one, under the same conditions."""
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.name(entry), 0o700, dir_fd=self.descriptor)
        if self.descriptor is None:
            yield Folder(self.path / entry)
            return
        with _descriptor(entry, self.path / entry, self.descriptor) as descriptor:
            yield Folder(self.path / entry, descriptor)


@contextlib.contextmanager
def opened(directory: Path, *, create: bool = False) -> Generator[Folder, None, None]:
    """The private directory `directory`. create: make it, and directories above it, with mode 0700.

    Raises:
        UntrustedError: others can change it.
        OSError: it does not exist, is no directory or cannot be read.
    """
    if not _HAS_OWNERS:
        if create:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield Folder(directory)
        return
    path = _resolved(os.path.abspath(directory), create)
    with _descriptor(path, path, None) as descriptor:
        yield Folder(Path(path), descriptor)


@contextlib.contextmanager
def _descriptor(name: str, path: str | Path, parent: int | None) -> Generator[int, None, None]:
    """A descriptor of a directory whose owner and mode are right."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        _check(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def _resolved(path: str, create: bool) -> str:
    """`path` without symbolic links; every component is checked before the next is looked up in it."""
    most_links = 40
    current, pending, links = "/", path.split("/")[::-1], 0
    _check(os.lstat(current), current, sticky=True)
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            current = os.path.dirname(current)
            continue
        step = os.path.join(current, name)
        stat = _created(step) if create else os.lstat(step)
        if S_ISLNK(stat.st_mode):
            links += 1
            if links > most_links:
                raise OSError(f"{path} has too many symbolic links")
            _check_owner(stat, step)
            target = os.readlink(step)
            current = "/" if target.startswith("/") else current
            pending.extend(target.split("/")[::-1])
            continue
        if not S_ISDIR(stat.st_mode):
            raise NotADirectoryError(f"{step} is not a directory")
        _check(stat, step, sticky=True)
        current = step
    return current


def _created(path: str) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        return os.lstat(path)


def _is_link(folder: Folder, entry: str) -> bool:
    try:
        return S_ISLNK(os.lstat(folder.name(entry), dir_fd=folder.descriptor).st_mode)
    except OSError:
        return False


def _check(stat: os.stat_result, path: str | Path, *, sticky: bool = False) -> None:
    """Raise UntrustedError if others can change the file. sticky: the sticky bit suffices in a directory."""
    if not _HAS_OWNERS:
        return
    _check_owner(stat, path)
    if sticky and stat.st_mode & S_ISVTX:
        return
    if stat.st_mode & S_IWOTH or (stat.st_mode & S_IWGRP and not _is_own_group(stat.st_gid, os.geteuid())):
        raise UntrustedError(f"others can write to {path} (mode {stat.st_mode & 0o7777:o})")


def _check_owner(stat: os.stat_result, path: str | Path) -> None:
    if stat.st_uid not in (os.geteuid(), 0):
        raise UntrustedError(f"{path} belongs to user {stat.st_uid}")


@cache
def _is_own_group(gid: int, uid: int) -> bool:
    """Whether a group is the private group of a user: of the same name, without other members."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and not set(group.gr_mem) - {user}


# --- the files of the on-disk cache ----------------------------------------------------------------------------------

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that are being written."""
_MAGIC: Final = b"meta-cache-1\n\0\0\0"
_DIGEST: Final = hashlib.sha256().digest_size
_TRAILER: Final = 2 * _DIGEST + len(_MAGIC)


def files(folder: Folder) -> Iterator[tuple[Folder, str, os.stat_result]]:
    """The files in the subfolders of entries; files that vanish meanwhile are skipped."""
    for place in folder.entries():
        if len(place.name) > 2:
            continue
        with contextlib.suppress(OSError), folder.subfolder(place.name) as bucket:
            yield from ((bucket, name, stat) for name, stat in _regular_files(bucket))


def _regular_files(bucket: Folder) -> Iterator[tuple[str, os.stat_result]]:
    for entry in bucket.entries():
        with contextlib.suppress(OSError):
            stat = os.stat(bucket.name(entry.name), dir_fd=bucket.descriptor, follow_symlinks=False)
            if S_ISREG(stat.st_mode):
                yield entry.name, stat


def read_verified(bucket: Folder, name: str) -> bytes | None:
    """The payload of a file, or None; an invalid file is removed, and the time of use is updated."""
    touch_after = 3600.0  # seconds; a finer order of last use would cost a system call on every hit
    try:
        with os.fdopen(bucket.open_file(name, os.O_RDONLY), "rb") as file:
            modified = os.fstat(file.fileno()).st_mtime
            payload = _payload(file.read(), name)
    except UntrustedError:
        payload, modified = None, 0.0
    except OSError:
        return None
    if payload is None:
        bucket.remove(name)
        return None
    if time.time() - modified > touch_after:
        with contextlib.suppress(OSError):
            os.utime(bucket.name(name), dir_fd=bucket.descriptor)
    return payload


def encoded(payload: bytes, name: str) -> bytes:
    """The contents of the file `name` with that payload."""
    name_digest = hashlib.sha256(name.encode()).digest()
    return payload + name_digest + hashlib.sha256(payload + name_digest).digest() + _MAGIC


def _payload(blob: bytes, name: str) -> bytes | None:
    """The payload of an entry, or None if the bytes are not a valid entry of that file name."""
    if len(blob) < _TRAILER or blob[-len(_MAGIC) :] != _MAGIC:
        return None
    body, checksum = blob[: _DIGEST - _TRAILER], blob[_DIGEST - _TRAILER : -len(_MAGIC)]
    if body[-_DIGEST:] != hashlib.sha256(name.encode()).digest() or hashlib.sha256(body).digest() != checksum:
        return None
    return body[:-_DIGEST]


def write_atomically(folder: Folder, name: str, blob: bytes) -> None:
    """Write a temporary file and rename it, so that readers see the old or the new file, never a part.

    It skips fsync: after a power cut the checksum fails and the entry is built again."""
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        with os.fdopen(folder.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(blob)
        folder.replace(temporary, name)
    except BaseException:
        folder.remove(temporary)
        raise


_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between two attempts to lock


@contextlib.contextmanager
def exclusive(folder: Folder, name: str, key: str, seconds: float) -> Generator[None, None, None]:
    """Hold the lock of `key`, one of the bytes of a file, for as long as the context lasts. The lock ends with the
    process. After `seconds` of waiting, and on systems without locks of open files, the context begins without it.

    Raises:
        OSError: the file cannot be opened or locked.
    """
    # Locks of open files are Linux's; other locks of a process end when it closes any descriptor of the file.
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if fcntl is None or command is None:
        yield
        return
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "little")
    latest, pause = time.monotonic() + seconds, _FIRST_PAUSE
    descriptor = folder.open_file(name, os.O_RDWR | os.O_CREAT)
    try:
        while True:
            try:
                fcntl.fcntl(descriptor, command, _byte(fcntl.F_WRLCK, start))
                break
            except (BlockingIOError, PermissionError):  # another process has it
                if time.monotonic() > latest:
                    break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _byte(kind: int, start: int) -> bytes:
    """C's `struct flock` for one byte of a file: kind, whence, start, length, process."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, start, 1, 0)
