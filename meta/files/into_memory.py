"""Files read straight into the memory of arrays, without another copy."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt


class Readable(Protocol):
    """A buffered file, or a member of an archive."""

    def read(self, count: int, /) -> bytes: ...

    def readinto(self, target: memoryview, /) -> int: ...


def allocate(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to read a file into. The values are undefined.

    NumPy asks the system for huge pages. A virtual machine that hands unused memory back to its host gets each of them
    from there anew: 0.5 to 0.9 s for the 500 MiB of BERT-base, where small pages take 0.2 s. Products with the weights
    take as long with either."""
    least_mapped = 1 << 20  # An array of at least this many bytes is mapped separately, in small pages.
    # Bytes of whose multiple an array's address is: on others, products of libraries round differently.
    alignment = 64
    kind: np.dtype[Any] = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size >= least_mapped and hasattr(mmap, "MAP_ANONYMOUS"):
        with contextlib.suppress(OSError):  # where memory runs out, NumPy raises the error
            pages: Any = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return np.ndarray(tuple(shape), kind, pages)
    memory: Any = np.empty(size + alignment - 1, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(kind).reshape(tuple(shape))


def fill(file: IO[bytes] | Readable, target: memoryview) -> int:
    """Fill a buffer with the next bytes of a file, as many as there are; returns their number."""
    # Bytes that are read at once: they are in the processor's cache for their checksum, and zipfile's copies of them
    # take no memory from the system.
    piece = 1 << 16
    source: Any = file
    position = 0
    while position < len(target):
        count: int = source.readinto(target[position : position + piece])
        if not count:
            break
        position += count
    return position


class StoredMember:
    """The bytes of a member of a ZIP file that is not compressed, from its start: zipfile would copy them twice.

    left: how many are not read yet.  crc: the checksum of those that are."""

    def __init__(self, archive: zipfile.ZipFile, file: IO[bytes], member: zipfile.ZipInfo) -> None:
        """archive: of `file`, whose position must not change while the member is read. Raises what zipfile raises for
        a member whose header is invalid."""
        # Where the header of a member has the lengths of its name and of its extra field, which end it.
        name_length = 26
        with archive.open(member):  # which checks its header
            file.seek(member.header_offset + name_length)
            lengths: tuple[int, int] = struct.unpack("<HH", file.read(4))
            file.seek(sum(lengths), os.SEEK_CUR)
        self._file: Any = file
        self.left = member.file_size
        self.crc = 0

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes."""
        data: bytes = self._file.read(min(count, self.left))
        self.left -= len(data)
        self.crc = zlib.crc32(data, self.crc)
        return data

    def readinto(self, target: memoryview, /) -> int:
        """Read as many bytes as fit; returns their number."""
        count: int = self._file.readinto(target[: self.left])
        self.left -= count
        self.crc = zlib.crc32(target[:count], self.crc)
        return count
