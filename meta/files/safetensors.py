"""Named arrays in the safetensors format (https://huggingface.co/docs/safetensors).

A file is the length of a header (8 bytes, little-endian), the header in JSON, and the bytes of the arrays, one after
the other without gaps. The header has each array's dtype, shape and position, and a map of strings to strings. Reading
evaluates nothing. It checks the whole header against the length of the file before it allocates memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from meta.dtype import itemsize, to_numpy
from meta.errors import FileError
from meta.files.atomic import Path, opened, replacing
from meta.limits import MAX_HEADER, MAX_NAME, array_bytes

if TYPE_CHECKING:
    import numpy as np

_NAMES: Final[Mapping[str, str]] = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_DTYPES: Final[Mapping[str, str]] = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH: Final = struct.Struct("<Q")
_METADATA: Final = "__metadata__"
_EXPECTED: Final = "a whole file in the safetensors format, as meta.save writes it"


class Writable(Protocol):
    """A file that is open for writing."""

    def write(self, data: Any, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An array to write. values: returns it, on the host, when its turn comes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in a file. begin: its position after the header, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file that is open for reading, whose header has been checked."""

    path: str
    metadata: Mapping[str, str]
    stored: Mapping[str, Stored]
    _file: IO[bytes]
    _start: int

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The values of an array. Raises FileError if the file has become shorter, KeyError for an unknown name."""
        import numpy as np

        stored = self.stored[name]
        data: Any = np.empty(stored.end - stored.begin, np.uint8)
        self._file.seek(self._start + stored.begin)
        if self._file.readinto(memoryview(data)) != data.nbytes:  # type: ignore[attr-defined]
            raise _invalid(self.path, f"the file ends inside of '{name}'")
        if stored.dtype == "bool":
            data = data != 0  # a bool of another byte would be neither true nor false
        return data.view(to_numpy(stored.dtype)).reshape(stored.shape)


def write(path: Path, entries: Sequence[Entry], metadata: Mapping[str, str]) -> None:
    """Write a file atomically.

    Raises:
        FileError: it cannot be written (a file that was there stays), or its header is too long to be read again.
    """
    text, ordered = _header(entries, metadata, os.fspath(path))
    with replacing(path) as file:
        _put(file, text, ordered)


def put(file: Writable, entries: Sequence[Entry], metadata: Mapping[str, str], path: str) -> None:
    """Write to an open file what `write` writes. path: for errors. Raises FileError as `write` does."""
    _put(file, *_header(entries, metadata, path))


def _header(entries: Sequence[Entry], metadata: Mapping[str, str], path: str) -> tuple[bytes, list[Entry]]:
    """The header, and the arrays in the order in which the file has them."""
    # Positions are multiples of the size of an element when larger elements come first.
    ordered = sorted(entries, key=lambda e: -itemsize(e.dtype))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    position = 0
    for entry in ordered:
        size = array_bytes(entry.shape, itemsize(entry.dtype)) or 0
        offsets = [position, position + size]
        header[entry.name] = {"dtype": _NAMES[entry.dtype], "shape": list(entry.shape), "data_offsets": offsets}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        problem = f"names and plain values take {len(text)} bytes in {path}"
        raise FileError("save", problem, f"at most {MAX_HEADER}", "save long lists of numbers as arrays")
    return text, ordered


def _put(file: Writable, text: bytes, ordered: Sequence[Entry]) -> None:
    file.write(_LENGTH.pack(len(text)))
    file.write(text)
    for entry in ordered:
        file.write(_bytes(entry))


def _bytes(entry: Entry) -> memoryview:
    import numpy as np

    values: Any = np.asarray(entry.values(), order="C")
    return memoryview(values.reshape(-1).view(np.uint8))


@contextlib.contextmanager
def reading(path: Path) -> Generator[TensorFile, None, None]:
    """A file to read arrays from.

    Raises:
        FileError: it cannot be read, or is not a valid file of this format.
    """
    with opened(path) as file:
        yield checked(file, os.fstat(file.fileno()).st_size, os.fspath(path))


def checked(file: IO[bytes], size: int, name: str) -> TensorFile:
    """A file of `size` bytes, at its start, whose header is read and checked. Raises FileError."""
    prefix = file.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        raise _invalid(name, f"the file has {size} bytes")
    (length,) = _LENGTH.unpack(prefix)
    start = _LENGTH.size + length
    if length > MAX_HEADER or start > size:
        raise _invalid(name, f"a header of {length} bytes in a file of {size}")
    header = _parsed(file.read(length), name)
    metadata = _metadata(header.pop(_METADATA, {}), name)
    stored = {key: _stored(key, value, name) for key, value in header.items()}
    _check_positions(stored, size - start, name)
    return TensorFile(name, metadata, stored, file, start)


def parse_json(text: str | bytes) -> Any:
    """A JSON value without repeated keys. Raises ValueError for other text, however deep it nests."""
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def _parsed(text: bytes, path: str) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _invalid(path, f"its header is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(header, dict):
        raise _invalid(path, "its header is not a JSON object")
    return header  # pyright: ignore[reportUnknownVariableType]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("a key occurs twice")
    return out


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _metadata(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        raise _invalid(path, f"its {_METADATA} is not a map of strings to strings")
    return value  # pyright: ignore[reportUnknownVariableType]


def _stored(name: str, value: Any, path: str) -> Stored:
    shown = name if len(name) <= 60 else name[:57] + "..."
    if len(name) > MAX_NAME or not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:  # pyright: ignore[reportUnknownArgumentType]
        raise _invalid(path, f"the entry of '{shown}' is not one of an array")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise FileError("load", f"'{shown}' in {path} has dtype {dtype!r:.60}", f"one of {', '.join(_DTYPES)}")
    size = array_bytes(shape, itemsize(_DTYPES[dtype])) if isinstance(shape, list) else None  # pyright: ignore[reportUnknownArgumentType]
    if size is None:
        raise _invalid(path, f"'{shown}' has shape {shape!r:.60}")
    if not isinstance(offsets, list) or [type(x) for x in offsets] != [int, int] or offsets[1] - offsets[0] != size:  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        raise _invalid(path, f"'{shown}' takes {size} bytes, at the positions {offsets!r:.60}")
    return Stored(_DTYPES[dtype], tuple(shape), offsets[0], offsets[1])  # pyright: ignore[reportUnknownArgumentType]


def _check_positions(stored: Mapping[str, Stored], size: int, path: str) -> None:
    """Raise FileError unless the arrays fill the file without gaps: arrays that share bytes could expand a small file
    to any amount of memory."""
    position = 0
    for name, each in sorted(stored.items(), key=lambda item: (item[1].begin, item[1].end)):
        if each.begin != position:
            raise _invalid(path, f"'{name:.60}' begins at byte {each.begin}, where {position} bytes come before")
        position = each.end
    if position != size:
        raise _invalid(path, f"{size} bytes of arrays, of which the header describes {position}")


def _invalid(path: str, problem: str) -> FileError:
    return FileError("load", f"{path} is not a valid file: {problem}", _EXPECTED)
