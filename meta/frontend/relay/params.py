"""Parameters of Relay programs: a dict of arrays, an `.npz`, or the binary of `relay.save_param_dict`.

The binary is, little-endian: u64 magic, u64 reserved, u64 count, for each name u64 length and UTF-8 bytes, u64 count,
the arrays in the same order (`ndarray_format.py`).
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from meta.errors import ArgumentError
from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.limits import MAX_EXPANSION, MAX_EXPANSION_FREE
from meta.frontend.relay.ndarray_format import read_array

_MAGIC = 0xF7E58D4F05049CB7
_UINT64 = struct.Struct("<Q")
_ZIP = b"PK"
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile, zlib and numpy.lib.format raise for files that are not what they claim to be.
_BAD_FILE = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    SyntaxError,
    RecursionError,
    struct.error,
    zlib.error,
)

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Params: TypeAlias = "Mapping[str, Any] | bytes | bytearray | str | os.PathLike[str]"


def read_params(params: Params) -> Arrays:
    """The arrays of `params` by name.

    params: a mapping from names to anything that NumPy takes for an array; the bytes of `relay.save_param_dict` or of
    an `.npz`; or a path to a file of either. Arrays of bfloat16 have the dtype of `ml_dtypes`.

    Raises RelayError for a file that is cut off or is no such file, and ArgumentError for anything else. Nothing is
    unpickled, and no more memory is taken than a file holds."""
    value: Any = params
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_name(name): _array(name, each) for name, each in items}
    where = "params"
    if isinstance(value, (str, os.PathLike)):
        where = os.fspath(cast("str | os.PathLike[str]", value))
        value = _contents(where)
    if not isinstance(value, (bytes, bytearray)):
        allowed = "a dict of arrays, the bytes of relay.save_param_dict, or a path to such a file or to an .npz"
        raise ArgumentError("relay", f"params is {type(params).__name__}", allowed)
    data = memoryview(value)
    return _from_npz(data, where) if bytes(data[:2]) == _ZIP else _from_binary(data, where)


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RelayError("relay", f"cannot read {path}: {why}", "a file of parameters") from error


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentError("relay", f"params has a key of class {type(name).__name__}", "names")
    return name


def _array(name: str, value: Any) -> NDArray[Any]:
    """An array of numbers from an array of NumPy, meta, TVM or torch, or a nested list."""
    value = value.detach() if hasattr(value, "detach") else value
    numpy = getattr(value, "numpy", None)
    try:
        made: NDArray[Any] = np.asarray(numpy() if callable(numpy) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("relay", f"params[{name!r}]: {error}", "an array of numbers") from error
    if made.dtype.kind not in "biuf" and made.dtype != _bfloat16():
        raise ArgumentError("relay", f"params[{name!r}] has dtype {made.dtype}", "an array of numbers")
    return made


# --- the binary of relay.save_param_dict ---


def _from_binary(data: memoryview, where: str) -> Arrays:
    if len(data) < 8 or _UINT64.unpack_from(data)[0] != _MAGIC:
        raise _broken(where, "neither an .npz nor the binary of relay.save_param_dict")
    count, at = _count(data, 16, where)
    names: list[str] = []
    for _ in range(count):
        length, at = _count(data, at, where)
        try:
            names.append(bytes(data[at : at + length]).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise _broken(where, f"the name of parameter {len(names)} is not UTF-8") from error
        at += length
    if len(set(names)) != len(names):
        raise _broken(where, "two parameters have one name")
    arrays, at = _count(data, at, where)
    if arrays != count:
        raise _broken(where, f"{count} names and {arrays} arrays")
    out: Arrays = {}
    for name in names:
        values, dtype, at = read_array(data, at, f"{where}, parameter {name!r}")
        out[name] = _as_bfloat16(values) if dtype == "bfloat16" else values
    if at != len(data):
        raise _broken(where, f"{len(data) - at} bytes behind the last parameter")
    return out


def _count(data: memoryview, at: int, where: str) -> tuple[int, int]:
    """The u64 at byte `at`, which cannot be more than the bytes behind it, and the byte behind it."""
    if len(data) - at < 8:
        raise _broken(where, "the file is cut off")
    (count,) = _UINT64.unpack_from(data, at)
    if count > len(data) - at - 8:
        raise _broken(where, f"a length of {count} where {len(data) - at - 8} bytes are left")
    return count, at + 8


def _as_bfloat16(words: NDArray[Any]) -> NDArray[Any]:
    return np.array(np.ndarray(words.shape, _bfloat16(), words.tobytes()))


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


# --- .npz ---


def _from_npz(data: memoryview, where: str) -> Arrays:
    out: Arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_sizes(archive, len(data), where)
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in out:
                    raise _broken(where, f"two parameters {name!r}")
                with archive.open(member) as file:
                    out[name] = _npy(file, member.file_size, f"{where}, parameter {name!r}")
    except (*_BAD_FILE, zipfile.BadZipFile) as error:
        if isinstance(error, RelayError):
            raise
        raise _broken(where, f"{type(error).__name__}: {error}"[:200]) from error
    return out


def _check_sizes(archive: zipfile.ZipFile, size: int, where: str) -> None:
    members = archive.infolist()
    if any(member.compress_type not in _STORED_OR_DEFLATED for member in members):
        raise _broken(where, "a compression that NumPy does not write")
    total = sum(member.file_size for member in members)
    if total > MAX_EXPANSION_FREE + MAX_EXPANSION * size:
        raise _broken(where, f"{size} bytes that expand to {total}", "arrays saved without compression, by numpy.savez")


def _npy(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """One array, after a look at its header: NumPy takes memory for whatever shape a header claims."""
    from numpy.lib import format as npy

    major, _ = npy.read_magic(file)
    header = npy.read_array_header_1_0(file) if major == 1 else npy.read_array_header_2_0(file)
    shape, fortran = header[:2]
    dtype: np.dtype[Any] = header[2]
    if dtype.kind not in "biuf" or dtype.itemsize == 0:
        raise _broken(where, f"dtype {dtype}", "integers, floats and bool; save bfloat16 as float32")
    expected = dtype.itemsize
    for each in shape:
        expected *= each
    if min(shape, default=0) < 0 or expected > size:
        raise _broken(where, f"an array of shape {shape} and {dtype} in {size} bytes"[:200])
    read = file.read(expected)
    if len(read) != expected:
        raise _broken(where, f"{len(read)} bytes where {expected} belong")
    values: NDArray[Any] = np.ndarray(shape, dtype, read, order="F" if fortran else "C")
    return values.astype(f"={dtype.kind}{dtype.itemsize}", order="C")


def _broken(
    where: str, wrong: str, allowed: str = "parameters as numpy.savez or relay.save_param_dict wrote them"
) -> RelayError:
    return RelayError("relay", f"{where}: {wrong}", allowed)
