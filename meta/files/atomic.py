"""Replacing files atomically: whatever happens, the path holds the old file or the whole new one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Generator
from typing import IO, Final, TypeAlias

from meta.errors import ArgumentError, FileError

Path: TypeAlias = "str | os.PathLike[str]"
_PARTIAL: Final = ".saving-"


def check_path(subject: str, path: object, remedy: str = "") -> None:
    """Raise ArgumentError for something other than a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(subject, f"the path is of class {type(path).__name__}", "a str or a path", remedy)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes], None, None]:
    """A file to write to, which replaces `path` when the block ends; after an error `path` is as it was.

    Raises:
        FileError: as `temporary`.
    """
    with temporary(path) as name, open(name, "wb") as file:
        yield file


@contextlib.contextmanager
def temporary(path: Path) -> Generator[str, None, None]:
    """The name of an empty file, which replaces `path` when the block ends; after an error `path` is as it was.

    It is in the same directory. What the block leaves under its name is flushed to the disk and renamed. A symbolic
    link goes on leading to the file that is replaced. What a killed process left is removed by the next one that saves
    the same file.

    Raises:
        FileError: the file cannot be written, or `path` is a directory or a device.
    """
    try:
        target = os.path.realpath(str(os.fspath(path)))
        mode = _mode(target, path)
        name = _temporary(target)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except (OSError, ValueError) as error:
        raise _unwritten(path, error) from error
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) if mode is None else mode
        os.close(descriptor)
        yield name
        _flush(name, mode)
        os.replace(name, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _unwritten(path, error) from error
        raise
    _flush_folder(os.path.dirname(target))


def read(path: Path) -> bytes:
    """The contents of a regular file. Raises FileError if it cannot be read."""
    with opened(path) as file:
        return file.read()


@contextlib.contextmanager
def opened(path: Path) -> Generator[IO[bytes], None, None]:
    """A regular file for reading.

    Raises:
        FileError: it does not open, is not a regular file, or cannot be read inside the block.
    """
    name = os.fspath(path)
    # Without O_NONBLOCK, opening a FIFO waits for its other end.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(name, flags)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise _unread(name, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError("load", f"{name} is not a regular file", "the path of a file")
    try:
        with os.fdopen(descriptor, "rb") as file:
            yield file
    except OSError as error:
        raise _unread(name, error) from error


def _mode(target: str, path: Path) -> int | None:
    """The permissions of the file that is replaced, None if there is none."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileError("save", f"{os.fspath(path)} is {kind}", "the path of a file")
    return stat.S_IMODE(mode)


def _temporary(target: str) -> str:
    """A new name beside `target`. Names from processes that died are removed."""
    folder, name = os.path.split(target)
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    start = f".{name[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}{_PARTIAL}{host}-"
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(start) and has_ended(entry[len(start) :].partition("-")[0]):
                os.unlink(os.path.join(folder, entry))
    return os.path.join(folder, f"{start}{os.getpid()}-{secrets.token_hex(8)}")


def has_ended(pid: str) -> bool:
    """Whether no process of this machine has the number; False if that cannot be told."""
    if os.name != "posix" or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _flush(name: str, mode: int) -> None:
    """Write a file to the disk, and give it permissions: the block may have put a new file under its name."""
    descriptor = os.open(name, os.O_RDWR)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: str) -> None:
    """Write the new name to the disk, where the system has a call for it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritten(path: Path, error: OSError | ValueError) -> FileError:
    return FileError(
        "save",
        f"cannot write {os.fspath(path)}: {_reason(error)}",
        "a directory that you can write to, with space",
        "a file that was there is unchanged",
    )


def _unread(path: str, error: OSError | ValueError) -> FileError:
    return FileError("load", f"cannot read {path}: {_reason(error)}", "a file that you can read")


def _reason(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
