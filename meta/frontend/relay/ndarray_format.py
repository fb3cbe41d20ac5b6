"""Arrays in the binary form that Relay-era TVM wrote, in JSON (as base64) and in parameter files.

An array is, little-endian: u64 magic, u64 reserved, i32 device type, i32 device id, i32 dimensions, u8 type code,
u8 bits, u16 lanes, i64 for each dimension, i64 length of the data in bytes, data.
"""

from __future__ import annotations

import struct
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from meta.dtype import array_bytes
from meta.files.into_memory import allocate, fill
from meta.frontend.relay.dtypes import NUMPY_DTYPES
from meta.frontend.relay.errors import RelayError
from meta.limits import MAX_DIMENSIONS

_MAGIC = 0xDD5E40F096B4A13F
_HEADER = struct.Struct("<QQiiiBBH")
# Codes of DLPack: 0 int, 1 uint, 2 float, 4 bfloat.
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


def read_array(file: IO[bytes], left: int, source: str) -> tuple[NDArray[Any], str, int]:
    """The array at the position of a file, Relay's name of its dtype, and how many bytes are left after it.

    left: the bytes from the position to the end of the file.  source: the name of the data in errors. The array owns
    its data, which is read into it. Raises RelayError if the bytes are not an array; nothing is allocated for a size
    beyond the bytes."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise _invalid(source, f"{len(header)} bytes are left where an array starts")
    magic, _, _, _, rank, code, bits, lanes = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise _invalid(source, f"an array starts with {magic:#x} and not with {_MAGIC:#x}")
    if not 0 <= rank <= MAX_DIMENSIONS:
        raise _invalid(source, f"an array of {rank} dimensions")
    dtype = _dtype(code, bits, lanes, source)
    sizes = file.read(8 * (rank + 1))
    if len(sizes) < 8 * (rank + 1):
        raise _invalid(source, "the shape of an array is cut off")
    *dimensions, length = struct.unpack(f"<{rank + 1}q", sizes)
    shape = tuple(dimensions)
    left -= len(header) + len(sizes)
    kind = np.dtype(NUMPY_DTYPES[dtype])
    if array_bytes(shape, kind.itemsize) != length:
        raise _invalid(source, f"an array of shape {shape} and {dtype} has {length} bytes of data")
    if length > left:
        raise _invalid(source, f"an array of {length} bytes is cut off after {left}")
    words: Any = allocate(shape, "<u1" if dtype == "bool" else kind)
    count = fill(file, memoryview(words.reshape(-1).view(np.uint8)))
    if count < length:
        raise _invalid(source, f"an array of {length} bytes is cut off after {count}")
    return np.not_equal(words, 0) if dtype == "bool" else words, dtype, left - length


def _dtype(code: int, bits: int, lanes: int, source: str) -> str:
    name = "bool" if (code, bits) == (1, 1) else f"{_KINDS.get(code, 'unknown')}{bits}"
    if name not in NUMPY_DTYPES or lanes != 1:
        raise _invalid(source, f"an array of type code {code}, {bits} bits and {lanes} lanes")
    return name


def _invalid(source: str, problem: str) -> RelayError:
    return RelayError("relay", f"{source}: {problem}", "integers, floats or bool in TVM's binary form")
