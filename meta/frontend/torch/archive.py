"""The archive of a `.pt2` file: a ZIP file of JSON and of the memory of tensors. Nothing in it is unpickled or run.

`torch.export.load` runs code from a file in some places: it unpickles the sample inputs, weights whose entry says
`use_pickle`, and script objects, and it evaluates sizes as SymPy's text. Here the sample inputs are not read, such
weights and objects are refused, and sizes are parsed by a grammar (`size_text`).

Members are stored, not compressed, below one folder: `models/NAME.json` (the program), `data/weights/` and
`data/constants/` (one member for each memory, and a JSON file that maps names to them), `byteorder`, `archive_format`.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from meta.device import Device
from meta.dtype import array_bytes, to_numpy
from meta.errors import FileError
from meta.files.into_memory import StoredMember, allocate, fill
from meta.files.strict_json import parse_json
from meta.frontend.torch.exported import Exported
from meta.frontend.torch.fields import bad_file, fields, integer, list_of, text
from meta.frontend.torch.schema import DTYPES, read_exported
from meta.limits import MAX_PROGRAM

# What zipfile and zlib raise for invalid files; OverflowError where an offset is beyond 2**63.
_BAD_FILE = (OSError, ValueError, LookupError, EOFError, RuntimeError, OverflowError, struct.error, zlib.error)
_MAX_MEMBERS = 1 << 17

Memory = npt.NDArray[np.uint8]
"""The bytes of a member."""


def read_file(path: str | os.PathLike[str], device: Device | None = None) -> Exported:
    """The program in a file that `torch.export.save` wrote. Raises FileError for a file that cannot be opened,
    TorchProgramError for a file of another kind, and for one that is cut off or contradicts itself."""
    name = os.fspath(path)
    with _opened(name) as file:
        return _read(file, os.path.basename(name), device)


def _opened(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError("torch", f"cannot read {name}: {reason}", "a .pt2 file") from error


def read_archive(data: bytes, source: str = "pt2", device: Device | None = None) -> Exported:
    """`read_file` for the bytes of a file. source: its name in errors."""
    return _read(io.BytesIO(data), source, device)


def _read(file: BinaryIO, source: str, device: Device | None) -> Exported:
    archive = _Archive(file, source)
    models = archive.names("models/", ".json")
    if len(models) != 1:
        listed = ", ".join(models) or "none"
        raise bad_file(source, f"the models in it are {listed[:200]}", "one program, as torch.export.save writes")
    name = models[0].removeprefix("models/").removesuffix(".json")
    program = archive.json(models[0])
    values: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for kind, config in (("weights", f"{name}_weights_config"), ("constants", f"{name}_constants_config")):
        for entry in archive.tensors(kind, f"data/{kind}/{config}.json"):
            if entry.name in values:
                raise bad_file(source, f"two tensors {entry.name!r}"[:200])
            values[entry.name], shared[entry.name] = entry.value, entry.memory
    return read_exported(program, values, shared, source, device)


@dataclass(frozen=True, slots=True, eq=False)
class _ArchiveTensor:
    """A tensor of the archive. memory: a key that tensors of the same memory and type share."""

    name: str
    value: Any
    memory: Any


class _Archive:
    """The members of the archive, whose sizes are bounded by the size of the file."""

    def __init__(self, file: BinaryIO, source: str) -> None:
        self.source = source
        self.file = file
        try:
            size = file.seek(0, os.SEEK_END)
            self.zip = zipfile.ZipFile(file)
            members = self.zip.infolist()
        except (*_BAD_FILE, zipfile.BadZipFile) as error:
            raise bad_file(source, _described(error)) from error
        if len(members) > _MAX_MEMBERS:
            raise bad_file(source, f"{len(members)} members", f"at most {_MAX_MEMBERS}")
        self.members: dict[str, zipfile.ZipInfo] = {}
        total = 0
        for member in members:
            _, _, inner = member.filename.partition("/")
            total += member.file_size
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise bad_file(source, f"the member {member.filename!r} is compressed"[:200])
            if inner in self.members:
                raise bad_file(source, f"two members {inner!r}"[:200])
            self.members[inner] = member
        if total > size:
            raise bad_file(source, f"members of {total} bytes in a file of {size}")
        if self.read("archive_format", 16) != b"pt2":
            raise bad_file(source, "the archive's format is not pt2")
        if self.read("byteorder", 16) != b"little":
            raise bad_file(source, "the byte order is not little-endian", "a file written on such a machine")

    def names(self, folder: str, suffix: str) -> list[str]:
        return sorted(n for n in self.members if n.startswith(folder) and n.endswith(suffix))

    def read(self, name: str, limit: int | None = None) -> bytes:
        """The contents of a member."""
        member = self.member(name)
        if limit is not None and member.file_size > limit:
            raise bad_file(self.source, f"the member {name!r} has {member.file_size} bytes"[:200], f"at most {limit}")
        try:
            return self.zip.read(member)
        except (*_BAD_FILE, zipfile.BadZipFile) as error:
            raise bad_file(self.source, f"{name!r}: {_described(error)}"[:200]) from error

    def member(self, name: str) -> zipfile.ZipInfo:
        member = self.members.get(name)
        if member is None:
            raise bad_file(self.source, f"there is no member {name!r}"[:200])
        return member

    def memory(self, name: str) -> Memory:
        """The contents of a member, in memory that arrays can have."""
        member = self.member(name)
        out = allocate((member.file_size,), np.uint8)
        try:
            stored = StoredMember(self.zip, self.file, member)
            size = fill(stored, out.data)
        except (*_BAD_FILE, zipfile.BadZipFile) as error:
            raise bad_file(self.source, f"{name!r}: {_described(error)}"[:200]) from error
        if size != len(out):
            raise bad_file(self.source, f"{name!r} is cut off after {size} of {len(out)} bytes"[:200])
        if stored.crc != member.CRC:
            raise bad_file(self.source, f"{name!r}: its checksum does not match its {size} bytes"[:200])
        return out

    def json(self, name: str) -> Any:
        """The value of a JSON member."""
        data = self.read(name, 8 * MAX_PROGRAM)
        try:
            return parse_json(data)
        except ValueError as error:
            raise bad_file(self.source, f"{name!r}: {error}"[:200], "JSON") from error

    def tensors(self, kind: str, config: str) -> list[_ArchiveTensor]:
        """The tensors that a configuration lists; none without one."""
        if config not in self.members:
            return []
        where = f"{self.source}, {config}"
        entries = fields(self.json(config), where).get("config")
        memories: dict[str, Memory] = {}
        return [
            self.tensor(kind, name, fields(entry, where), memories) for name, entry in fields(entries, where).items()
        ]

    def tensor(self, kind: str, name: str, entry: Mapping[str, Any], memories: dict[str, Memory]) -> _ArchiveTensor:
        where = f"{self.source}, tensor {name[:100]!r}"
        if entry.get("use_pickle") is not False:
            raise bad_file(where, "it is pickled", "the memory of a tensor", "save plain tensors: pickles run code")
        path = text(entry.get("path_name"), where)
        described = fields(entry.get("tensor_meta"), where)
        shape = _static(described.get("sizes"), where)
        strides = _static(described.get("strides"), where)
        offset = _static([described.get("storage_offset")], where)[0]
        dtype = DTYPES.get(integer(described.get("dtype"), where))
        if dtype is None:
            raise bad_file(where, f"the dtype number {described.get('dtype')} is not supported", "dtypes of meta")
        if described.get("layout") != 7:
            raise bad_file(where, f"the layout number {described.get('layout')!r}"[:100], "7, a dense tensor")
        is_first = path not in memories
        if is_first:
            memories[path] = self.memory(f"data/{kind}/{path}")
        value = _viewed(memories[path], dtype, shape, strides, offset, where)
        value.flags.writeable = is_first and value.flags.writeable  # arrays share writable memory, and copy other
        return _ArchiveTensor(name, value, (kind, path, dtype, shape, strides, offset))


def _static(sizes: object, where: str) -> tuple[int, ...]:
    return tuple(integer(fields(size, where).get("as_int"), where) for size in list_of(sizes, where))


def _viewed(
    memory: Memory, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, where: str
) -> np.ndarray[Any, Any]:
    """The elements of a tensor in its memory. Raises TorchProgramError for a shape that reaches out of it."""
    kind = to_numpy(dtype)
    if (
        len(shape) != len(strides)
        or array_bytes(shape, kind.itemsize) is None
        or min((*strides, offset), default=0) < 0
    ):
        raise bad_file(where, f"sizes {shape}, strides {strides} and offset {offset}"[:200], "valid ones for a tensor")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    empty = 0 in shape
    if not empty and (last + 1) * kind.itemsize > len(memory):
        raise bad_file(where, f"{last + 1} elements of {dtype} in {len(memory)} bytes", "the memory of the tensor")
    if empty:
        return np.zeros(shape, kind)
    steps = tuple(stride * kind.itemsize for stride in strides)
    return np.ndarray(shape, kind, memory.data, offset * kind.itemsize, steps)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
