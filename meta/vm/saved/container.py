"""The file of a program. It holds machine code, so whoever wrote it can run code as the user who loads it.

A file is a magic number, the SHA-256 and a signature of the contents, and the contents, in the safetensors format.
The hash finds damage. The signature (see `meta.files.signing`) shows that this user wrote the file. Nothing of the
contents is read before both have been checked, and what was checked is what is used: a file is read once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import warnings
from typing import Final

from meta.errors import ArgumentError, FileError
from meta.files import signing
from meta.files.atomic import Path, read, replacing

_MAGIC: Final = b"meta-program-1\n\0"
_DIGEST: Final = hashlib.sha256().digest_size
_START: Final = len(_MAGIC) + _DIGEST + signing.SIZE
_UNSIGNED: Final = bytes(signing.SIZE)
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_EXPECTED: Final = "a whole file that Executor.save wrote"


def write(path: Path, contents: bytes) -> str:
    """Write a file atomically; returns its SHA-256, in hex. Without a private directory for the key the file is not
    signed, of which a warning tells.

    Raises:
        FileError: it cannot be written.
    """
    try:
        signature = signing.sign(_MAGIC + contents)
    except OSError as error:
        signature = _UNSIGNED
        text = f"{os.fspath(path)} is not signed, so that loading it takes trust=...: {error}; set META_KEY_DIR"
        warnings.warn(text, UserWarning, stacklevel=4)
    data = b"".join((_MAGIC, hashlib.sha256(contents).digest(), signature, contents))
    with replacing(path) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def contents(path: Path, trust: bool | str) -> bytes:
    """The contents of a file that is whole and trusted.

    trust: see `meta.vm.load`.

    Raises:
        FileError: it cannot be read, is damaged or foreign, or is not trusted.
        ArgumentError: `trust` is neither a bool nor a hash.
    """
    if not isinstance(trust, bool) and not (isinstance(trust, str) and _HEX.fullmatch(trust)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError("load", f"trust is {trust!r:.80}", "False, True, or the SHA-256 of the file in hex")
    name = os.fspath(path)
    data = read(path)
    if data[: len(_MAGIC)] != _MAGIC:
        raise FileError("load", f"{name} is not a saved program", _EXPECTED)
    body = data[_START:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
        raise FileError("load", f"{name} is damaged: its contents have another hash", _EXPECTED)
    if isinstance(trust, str):
        found = hashlib.sha256(data).hexdigest()
        if not hmac.compare_digest(found, trust):
            raise FileError("load", f"{name} has the SHA-256 {found}", trust, "get the file that was meant")
    elif not trust and not signing.is_signed(_MAGIC + body, data[_START - signing.SIZE : _START]):
        raise FileError(
            "load",
            f"{name} holds machine code and is not signed by this user",
            "a program that this user saved",
            "if you trust whoever wrote it as you trust a program that you run, pass trust= with the SHA-256 that "
            "Executor.save returned there, or trust=True",
        )
    return body
