"""The file of a program. It holds machine code, so whoever wrote it can run code as the user who loads it.

A file is a magic number, the contents in the safetensors format, and the SHA-256 and a signature of all that.
The hash finds damage. The signature (see `meta.files.signing`) shows that this user wrote the file. Nothing of the
contents is read before both have been checked. A file is read once, so that the checked bytes are those that are used.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from meta.errors import ArgumentError, FileError
from meta.files import safetensors, signing
from meta.files.atomic import Path, read, replacing
from meta.folders import UntrustedError

PROGRAM: Final = "meta.program"
"""The name of a program's description among the texts of a file."""
_MAGIC: Final = b"meta-program-1\n\0"
_DIGEST: Final = hashlib.sha256().digest_size
_TRAILER: Final = _DIGEST + signing.SIZE
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_EXPECTED: Final = "a whole file that Executor.save wrote"


def write(path: Path, entries: Sequence[safetensors.ArrayEntry], metadata: Mapping[str, str]) -> str:
    """Write a file atomically; returns its SHA-256, in hex. Without a private directory for the key the file is not
    signed, and a warning says so.

    Raises:
        FileError: it cannot be written.
    """
    name = os.fspath(path)
    try:
        signature = signing.signature()
    except OSError as error:
        signature = None
        text = f"{name} is not signed, so that loading it takes trust=...: {error}; set META_KEY_DIR"
        warnings.warn(text, UserWarning, stacklevel=4)
    data = _MAGIC + safetensors.to_bytes(entries, metadata, name)
    if signature is not None:
        signature.update(data)
    whole = hashlib.sha256(data)
    trailer = whole.digest() + (signature.digest() if signature is not None else bytes(signing.SIZE))
    whole.update(trailer)
    with replacing(path) as file:
        file.write(data)
        file.write(trailer)
    return whole.hexdigest()


def contents(path: Path, trust: bool | str) -> bytes:
    """The contents of a file that is whole and trusted.

    trust: see `meta.vm.load`.

    Raises:
        FileError: it cannot be read, is damaged or foreign, or is not trusted.
        ArgumentError: `trust` is neither a bool nor a hash.
    """
    if not isinstance(trust, bool) and not (isinstance(trust, str) and _HEX.fullmatch(trust)):
        raise ArgumentError("load", f"trust is {trust!r:.80}", "False, True, or the SHA-256 of the file in hex")
    name = os.fspath(path)
    data = memoryview(read(path))
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise FileError("load", f"{name} is not a saved program", _EXPECTED)
    checked, trailer = data[:-_TRAILER], bytes(data[-_TRAILER:])
    if hashlib.sha256(checked).digest() != trailer[:_DIGEST]:
        raise FileError("load", f"{name} is damaged: its contents have another hash", _EXPECTED)
    if isinstance(trust, str):
        digest = hashlib.sha256(data).hexdigest()
        if not hmac.compare_digest(digest, trust):
            raise FileError("load", f"{name} has the SHA-256 {digest}", trust, "get the file that was meant")
    elif not trust and not _is_signed(name, checked, trailer[_DIGEST:]):
        raise FileError(
            "load",
            f"{name} holds machine code and is not signed by this user",
            "a program that this user saved",
            "if you trust whoever wrote it as you trust a program that you run, pass trust= with the SHA-256 that "
            "Executor.save returned there, or trust=True",
        )
    return bytes(checked[len(_MAGIC) :])


def _is_signed(name: str, data: bytes | memoryview, signature: bytes) -> bool:
    try:
        return signing.is_signed(data, signature)
    except UntrustedError as error:
        problem = f"{name} holds machine code, and the key that signs it is not safe: {error}"
        raise FileError("load", problem, "a key that only this user can read") from error
