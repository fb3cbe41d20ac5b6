"""Parameters of Relay programs: a dict of arrays, an `.npz`, or the binary of `relay.save_param_dict`.

The binary is, little-endian: u64 magic, u64 reserved, u64 count, for each name u64 length and UTF-8 bytes, u64 count,
the arrays in that order (`ndarray_format.py`).
"""

from __future__ import annotations

import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from meta.dtype import array_bytes
from meta.errors import ArgumentError
from meta.files.into_memory import StoredMember, allocate, fill
from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.ndarray_format import read_array
from meta.limits import MAX_EXPANSION, MAX_EXPANSION_FREE

_MAGIC = 0xF7E58D4F05049CB7
_UINT64 = struct.Struct("<Q")
_ZIP = b"PK"
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# The exceptions of zipfile, zlib and numpy.lib.format for invalid files; OverflowError where an offset is beyond 2**63,
# TypeError where a header has keys of several classes, which numpy.lib.format sorts.
_BAD_FILE = (
    TypeError,
    OSError,
    OverflowError,
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    struct.error,
    zlib.error,
)

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Params: TypeAlias = "Mapping[str, Any] | bytes | bytearray | str | os.PathLike[str]"


def read_params(params: Params) -> Arrays:
    """The arrays of `params` by name.

    params: a mapping from names to arrays, or to values that NumPy converts; the bytes of `relay.save_param_dict` or
    of an `.npz`; or a path to a file of either. Arrays of bfloat16 have the dtype of `ml_dtypes`.

    Raises RelayError for truncated and invalid files, and ArgumentError for other objects. Nothing is unpickled, and
    memory is bounded by the size of the file."""
    value: Any = params
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_name(name): _array(name, each) for name, each in items}
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(cast("str | os.PathLike[str]", value))
        with _opened(path) as file:
            return _read(file, path)
    if not isinstance(value, (bytes, bytearray)):
        expected = "a dict of arrays, the bytes of relay.save_param_dict, or a path to such a file or to an .npz"
        raise ArgumentError("relay", f"params is {type(params).__name__}", expected)
    return _read(io.BytesIO(value), "params")


def _read(file: IO[bytes], source: str) -> Arrays:
    is_zip = file.read(len(_ZIP)) == _ZIP
    size = file.seek(0, os.SEEK_END)
    if is_zip:
        return _from_npz(file, size, source)
    file.seek(0)
    return _from_binary(file, size, source)


@contextmanager
def _opened(path: str) -> Generator[IO[bytes]]:
    try:
        with open(path, "rb") as file:
            yield file
    except RelayError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RelayError("relay", f"cannot read {path}: {reason}", "a file of parameters") from error


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ArgumentError("relay", f"params has a key of class {type(name).__name__}", "names as keys")
    return name


def _array(name: str, value: Any) -> NDArray[Any]:
    """An array of numbers from an array of NumPy, meta, TVM or torch, or a nested list."""
    value = value.detach() if hasattr(value, "detach") else value
    numpy = getattr(value, "numpy", None)
    try:
        array: NDArray[Any] = np.asarray(numpy() if callable(numpy) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("relay", f"params[{name!r}]: {error}", "an array of numbers") from error
    if array.dtype.kind not in "biuf" and array.dtype != _bfloat16():
        raise ArgumentError("relay", f"params[{name!r}] has dtype {array.dtype}", "an array of numbers")
    return array


# --- the binary of relay.save_param_dict ---


def _from_binary(file: IO[bytes], size: int, source: str) -> Arrays:
    start = file.read(16)
    if len(start) < 16 or _UINT64.unpack_from(start)[0] != _MAGIC:
        raise _invalid(source, "neither an .npz nor the binary of relay.save_param_dict")
    count, left = _count(file, size - 16, source)
    names: list[str] = []
    for _ in range(count):
        length, left = _count(file, left, source)
        try:
            names.append(file.read(length).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise _invalid(source, f"the name of parameter {len(names)} is not UTF-8") from error
        left -= length
    if len(set(names)) != len(names):
        raise _invalid(source, "two parameters have one name")
    arrays, left = _count(file, left, source)
    if arrays != count:
        raise _invalid(source, f"{count} names and {arrays} arrays")
    out: Arrays = {}
    for name in names:
        array, dtype, left = read_array(file, left, f"{source}, parameter {name!r}")
        values: Any = array
        out[name] = values.view(_bfloat16()) if dtype == "bfloat16" else values
    if left:
        raise _invalid(source, f"{left} bytes after the last parameter")
    return out


def _count(file: IO[bytes], left: int, source: str) -> tuple[int, int]:
    """The u64 at the position of the file, at most the bytes that follow it, and the number of those.

    left: the bytes from the position to the end."""
    data = file.read(8)
    if len(data) < 8:
        raise _invalid(source, "the file is cut off")
    (count,) = _UINT64.unpack(data)
    if count > left - 8:
        raise _invalid(source, f"a length of {count} where {left - 8} bytes are left")
    return count, left - 8


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


# --- .npz ---


def _from_npz(data: IO[bytes], size: int, source: str) -> Arrays:
    out: Arrays = {}
    try:
        with zipfile.ZipFile(data) as archive:
            _check_sizes(archive, size, source)
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in out:
                    raise _invalid(source, f"two parameters {name!r}")
                out[name] = _member(archive, data, member, f"{source}, parameter {name!r}")
    except (*_BAD_FILE, zipfile.BadZipFile) as error:
        if isinstance(error, RelayError):
            raise
        raise _invalid(source, f"{type(error).__name__}: {error}"[:200]) from error
    return out


def _member(archive: zipfile.ZipFile, data: IO[bytes], member: zipfile.ZipInfo, source: str) -> NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED:
        with archive.open(member) as file:
            return _npy(file, member.file_size, source)
    stored = StoredMember(archive, data, member)
    values = _npy(stored, member.file_size, source)
    if not stored.left and stored.crc != member.CRC:
        raise _invalid(source, f"its checksum does not match its {member.file_size} bytes")
    return values


def _check_sizes(archive: zipfile.ZipFile, size: int, source: str) -> None:
    members = archive.infolist()
    if any(member.compress_type not in _STORED_OR_DEFLATED for member in members):
        raise _invalid(source, "a compression that NumPy does not write")
    total = sum(member.file_size for member in members)
    if total > MAX_EXPANSION_FREE + MAX_EXPANSION * size:
        raise _invalid(
            source, f"{size} bytes that expand to {total}", "arrays saved without compression, by numpy.savez"
        )


def read_npy(path: str) -> NDArray[Any]:
    """The array in a `.npy`. Raises RelayError for truncated and invalid files."""
    try:
        with _opened(path) as file:
            return _npy(file, os.fstat(file.fileno()).st_size, path)
    except _BAD_FILE as error:
        if isinstance(error, RelayError):
            raise
        raise _invalid(path, f"{type(error).__name__}: {error}"[:200], "an array written by numpy.save") from error


def _npy(file: IO[bytes] | StoredMember, size: int, source: str) -> NDArray[Any]:
    """One array, whose header is checked first: NumPy allocates the shape in the header."""
    from numpy.lib import format as npy

    stream: Any = file
    major, _ = npy.read_magic(stream)
    header = npy.read_array_header_1_0(stream) if major == 1 else npy.read_array_header_2_0(stream)
    shape, fortran = header[:2]
    dtype: np.dtype[Any] = header[2]
    if dtype.kind not in "biuf" or dtype.itemsize == 0:
        raise _invalid(source, f"dtype {dtype}", "integers, floats and bool; save bfloat16 as float32")
    expected = array_bytes(shape, dtype.itemsize)
    if expected is None or expected > size:
        raise _invalid(source, f"an array of shape {shape} and {dtype} in {size} bytes"[:200])
    values: Any = allocate(shape[::-1] if fortran else shape, dtype)
    count = fill(file, memoryview(values.reshape(-1).view(np.uint8)))
    if count != expected:
        raise _invalid(source, f"an array of {expected} bytes is cut off after {count}")
    return (values.T if fortran else values).astype(f"={dtype.kind}{dtype.itemsize}", order="C", copy=False)


def _invalid(
    source: str, problem: str, expected: str = "parameters written by numpy.savez or relay.save_param_dict"
) -> RelayError:
    return RelayError("relay", f"{source}: {problem}", expected)
