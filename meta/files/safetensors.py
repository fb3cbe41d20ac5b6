"""Named arrays in the safetensors format (https://huggingface.co/docs/safetensors), by the package of that name.

The package checks a whole header against the length of the file before it allocates memory, and evaluates nothing. This
module adds atomic writing, a lower limit on headers, and meta's dtypes and errors.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import IO, TYPE_CHECKING, Any, Final

from meta.dtype import to_numpy
from meta.errors import FileError
from meta.files.atomic import Path, opened, temporary
from meta.files.into_memory import fill
from meta.files.strict_json import parse_json
from meta.limits import MAX_HEADER

if TYPE_CHECKING:
    import numpy as np

_DTYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_LENGTH: Final = struct.Struct("<Q")
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_EXPECTED: Final = "a whole file in the safetensors format, as meta.save writes it"


@dataclass(frozen=True, slots=True)
class ArrayEntry:
    """An array to write. values: returns it, on the host."""

    name: str
    dtype: str
    values: Callable[[], np.ndarray[Any, Any]]


def array_entry(name: str, x: Any) -> ArrayEntry:
    """The entry of an array of this package."""
    return ArrayEntry(name, x.dtype, lambda: x.detach().numpy())


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The arrays of a file, whose header has been checked. path: for errors."""

    path: str
    metadata: Mapping[str, str]
    dtypes: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    _values: Callable[[str, str], np.ndarray[Any, Any]]
    _starts: Mapping[str, int]
    """Where the values of each array begin in the file."""

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The values of an array. Raises FileError if the file has become shorter, KeyError for an unknown name."""
        import numpy as np

        dtype = self.dtypes[name]
        with _invalid_files(self.path):
            values: Any = self._values(name, dtype)
        # A bool of another byte would be neither true nor false.
        return values.view(np.uint8) != 0 if dtype == "bool" else values

    def read_into(self, name: str, file: IO[bytes], target: Any) -> None:
        """Read an array from `file`, this file opened once more, into a contiguous NumPy array of its size. Values are
        cast to another dtype on the way, piece by piece, so that no second copy of them exists.

        Raises FileError if the file has become shorter."""
        flat = target.reshape((-1,))
        if flat.dtype == to_numpy(self.dtypes[name]):
            file.seek(self._starts[name])
            self._fill(name, file, flat)
            return
        start = 0
        for values in self.pieces(name, file, 1 << 20):
            flat[start : start + values.size] = values
            start += values.size

    def pieces(self, name: str, file: IO[bytes], size: int) -> Iterator[Any]:
        """The values of an array in pieces of `size` elements, flat, in the dtype of the file. A piece is valid until
        the next one is read. Raises FileError as `read_into`."""
        import numpy as np

        count = prod(self.shapes[name])
        buffer = np.empty(min(size, count), to_numpy(self.dtypes[name]))
        file.seek(self._starts[name])
        for start in range(0, count, size):
            values = buffer[: count - start]
            self._fill(name, file, values)
            yield values

    def _fill(self, name: str, file: IO[bytes], values: Any) -> None:
        import numpy as np

        if fill(file, memoryview(values.view(np.uint8))) < values.nbytes:
            raise _invalid(self.path, f"it ends within '{name:.60}'")


def write(path: Path, entries: Sequence[ArrayEntry], metadata: Mapping[str, str]) -> None:
    """Write a file atomically.

    Raises:
        FileError: it cannot be written (a file that was there stays), the format lacks a dtype, or its header is too
            long to be read again.
    """
    _check_dtypes(entries)
    arrays = _host_arrays(entries)
    with temporary(path) as name:
        try:
            _package().serialize_file(_specs(entries, arrays), name, dict(metadata) or None)
        except _package().SafetensorError as error:
            raise _unwritten(error) from error
        with open(name, "rb") as file:
            _check_header(file.read(_LENGTH.size), os.fspath(path))


def to_bytes(entries: Sequence[ArrayEntry], metadata: Mapping[str, str], path: str) -> bytes:
    """The contents of a file. path: for errors. Raises FileError for a header that is too long to be read again."""
    _check_dtypes(entries)
    arrays = _host_arrays(entries)
    data = _package().serialize(_specs(entries, arrays), dict(metadata) or None)
    _check_header(data, path)
    return data


@contextlib.contextmanager
def reading(path: Path) -> Generator[TensorFile, None, None]:
    """A file to read arrays from.

    Raises:
        FileError: it cannot be read, is not a valid file of this format, or has dtypes that meta lacks.
    """
    name = os.fspath(path)
    with opened(path) as file:
        length = _check_length(file.read(_LENGTH.size), os.fstat(file.fileno()).st_size, name)
        with contextlib.ExitStack() as stack:
            # "pread" reports a file that another process shortens; a mapped one would end this process.
            with _invalid_files(name):
                tensors: Any = stack.enter_context(_package().safe_open(name, "np", backend="pread"))
                header = parse_json(file.read(length))  # the package takes the last of two arrays of one name
            dtypes = _dtypes(((key, tensors.get_slice(key).get_dtype()) for key in tensors.offset_keys()), name)

            def values(key: str, dtype: str) -> np.ndarray[Any, Any]:
                kind = to_numpy(dtype)  # first, so that NumPy knows bfloat16
                return tensors.get_tensor(key).view(kind)

            shapes, starts = _layout(header, length)
            yield TensorFile(name, tensors.metadata() or {}, dtypes, shapes, values, starts)


def from_bytes(data: bytes, path: str) -> TensorFile:
    """The arrays of the contents of a file. path: for errors. Raises FileError as `reading` does."""
    length = _check_length(data, len(data), path)
    with _invalid_files(path):
        stored: dict[str, Any] = dict(_package().deserialize(data))
        header = parse_json(data[_LENGTH.size : _LENGTH.size + length])  # the package returns no metadata of bytes
    dtypes = _dtypes(((key, each["dtype"]) for key, each in stored.items()), path)

    def values(key: str, dtype: str) -> np.ndarray[Any, Any]:
        import numpy as np

        flat: Any = np.frombuffer(stored[key]["data"], to_numpy(dtype))
        return flat.reshape(stored[key]["shape"])

    shapes, starts = _layout(header, length)
    return TensorFile(path, header.get("__metadata__") or {}, dtypes, shapes, values, starts)


def _layout(header: Mapping[str, Any], length: int) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """The shape of each array, and where it begins, by a checked header of `length` bytes."""
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    first = _LENGTH.size + length
    return (
        {name: tuple(entry["shape"]) for name, entry in entries.items()},
        {name: first + entry["data_offsets"][0] for name, entry in entries.items()},
    )


def _package() -> Any:
    """The package; Any, as it has no type information."""
    import safetensors

    return safetensors


def _host_arrays(entries: Sequence[ArrayEntry]) -> list[Any]:
    import numpy as np

    return [np.asarray(entry.values(), order="C") for entry in entries]


def _check_dtypes(entries: Sequence[ArrayEntry]) -> None:
    """Raise FileError for a dtype that the format lacks."""
    for entry in entries:
        if entry.dtype not in _DTYPES.values():
            problem, remedy = f"'{entry.name:.60}' has dtype {entry.dtype}", "save meta.view_as_real(...) of it"
            raise FileError("save", problem, ", ".join(_DTYPES.values()), remedy)


def _specs(entries: Sequence[ArrayEntry], arrays: Sequence[Any]) -> dict[str, Any]:
    """Where the bytes of the arrays are. `arrays` have to live until the bytes are written."""
    spec = _package().TensorSpec
    return {
        entry.name: spec(dtype=entry.dtype, shape=list(x.shape), data_ptr=x.ctypes.data, data_len=x.nbytes)
        for entry, x in zip(entries, arrays, strict=True)
    }


def _dtypes(stored: Iterable[tuple[str, str]], path: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for name, dtype in stored:
        if dtype not in _DTYPES:
            raise FileError("load", f"'{name:.60}' in {path} has dtype '{dtype}'", f"one of {', '.join(_DTYPES)}")
        out[name] = _DTYPES[dtype]
    return out


def _check_length(prefix: bytes, size: int, path: str) -> int:
    """The length of the header. Raises FileError if it is longer than the file or the limit: the package takes 100 MB,
    whose JSON could take gigabytes in memory."""
    if len(prefix) < _LENGTH.size:
        raise _invalid(path, f"the file has {size} bytes")
    (length,) = _LENGTH.unpack_from(prefix)
    if length > min(MAX_HEADER, size - _LENGTH.size):
        raise _invalid(path, f"a header of {length} bytes in a file of {size}")
    return length


def _check_header(data: bytes, path: str) -> None:
    (length,) = _LENGTH.unpack_from(data)
    if length > MAX_HEADER:
        problem = f"names and plain values take {length} bytes in {path}"
        raise FileError("save", problem, f"at most {MAX_HEADER}", "save long lists of numbers as arrays")


@contextlib.contextmanager
def _invalid_files(path: str) -> Generator[None, None, None]:
    """Errors of the package, and of NumPy for shapes that it cannot hold, become FileError."""
    try:
        yield
    except (_package().SafetensorError, ValueError) as error:
        raise _invalid(path, str(error).removeprefix("Error while deserializing").lstrip(" :")[:300]) from error


def _unwritten(error: Exception) -> OSError:
    """The error of the operating system that the package reports as text."""
    number = _OS_ERROR.search(str(error))
    return OSError(str(error)) if number is None else OSError(int(number[1]), os.strerror(int(number[1])))


def _invalid(path: str, problem: str) -> FileError:
    return FileError("load", f"{path} is not a valid file: {problem}", _EXPECTED)
