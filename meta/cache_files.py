"""The files of the on-disk cache: their format, verified reading, atomic writing, listing and locking.

A file is the payload, then a trailer: a digest of the file's name, a checksum over both, and a magic number. The
payload comes first so that a shared library loads directly from the cache (loaders ignore bytes after the last
section). Files are written under a temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
import time
from collections.abc import Generator, Iterator
from stat import S_ISREG
from typing import Final

from meta.folders import Folder, UntrustedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that are being written."""
_MAGIC: Final = b"meta-cache-1\n\0\0\0"
_DIGEST: Final = hashlib.sha256().digest_size
_TRAILER: Final = 2 * _DIGEST + len(_MAGIC)
_TOUCH_AFTER: Final = 3600.0  # seconds; a finer order of last use would cost a system call on every hit


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
    if time.time() - modified > _TOUCH_AFTER:
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
