"""Signatures by which this user recognises files that it wrote.

The key is 32 random bytes in a file that only this user can read, in a private directory (see `meta.folders`):
`META_KEY_DIR`, or the user's data directory. A signature is HMAC-SHA256. Whoever can read the key can run programs as
this user in any case.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from meta.folders import Folder, UntrustedError, opened

SIZE: Final = 32
_NAME: Final = "signing-key"


def signature() -> hmac.HMAC:
    """A signature to update with data, with a key that is made at the first use.

    Raises:
        UntrustedError: others can read or write the key.
        OSError: there is no private directory for the key, or it cannot be written.
    """
    with opened(_directory(), create=True) as folder:
        return hmac.new(_key(folder) or _new_key(folder), digestmod="sha256")


def is_signed(data: bytes | memoryview, signature: bytes) -> bool:
    """Whether this user signed `data`. False without a key. Raises UntrustedError if others can read or write the
    key."""
    try:
        with opened(_directory()) as folder:
            key = _key(folder)
    except UntrustedError:
        raise
    except OSError:
        return False
    return key is not None and hmac.compare_digest(hmac.digest(key, data, "sha256"), signature)


def _directory() -> Path:
    folder = os.environ.get("META_KEY_DIR")
    if folder:
        return Path(folder)
    from platformdirs import user_data_path

    path = user_data_path("meta-tvm", appauthor=False)
    if not path.is_absolute():
        raise FileNotFoundError("this user has no home directory")
    return path


def _key(folder: Folder) -> bytes | None:
    """The key, or None without a key file. Raises UntrustedError if others can read or write the file, OSError if its
    contents are invalid."""
    try:
        with os.fdopen(folder.open_file(_NAME, os.O_RDONLY, secret=True), "rb") as file:
            key = file.read(SIZE + 1)
    except FileNotFoundError:
        return None
    except UntrustedError as error:
        remedy = "delete this file: the next save makes a new key, with which programs are saved again"
        raise UntrustedError(f"{error}, and so sign as this user; {remedy}") from None
    if len(key) != SIZE:
        raise OSError(f"{folder.path / _NAME} has {len(key)} bytes instead of {SIZE}; delete it")
    return key


def _new_key(folder: Folder) -> bytes:
    """Store a new key. If another process does so at the same time, both use the same one."""
    temporary = f".{_NAME}-{secrets.token_hex(8)}"
    try:
        with os.fdopen(folder.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(secrets.token_bytes(SIZE))
            file.flush()
            os.fsync(file.fileno())
        where = folder.descriptor
        with contextlib.suppress(FileExistsError):
            os.link(folder.name(temporary), folder.name(_NAME), src_dir_fd=where, dst_dir_fd=where)
    finally:
        folder.remove(temporary)
    key = _key(folder)
    if key is None:
        raise FileNotFoundError(f"{folder.path / _NAME} has been deleted")
    return key
