"""Arrays in the binary form that Relay-era TVM wrote, in JSON (as base64) and in parameter files.

An array is, little-endian: u64 magic, u64 reserved, i32 device type, i32 device id, i32 dimensions, u8 type code,
u8 bits, u16 lanes, i64 for each dimension, i64 length of the data in bytes, data.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meta.frontend.relay.dtypes import NUMPY_DTYPES
from meta.frontend.relay.errors import RelayError
from meta.limits import MAX_DIMENSIONS, array_bytes

_MAGIC = 0xDD5E40F096B4A13F
_HEADER = struct.Struct("<QQiiiBBH")
_INT64 = struct.Struct("<q")
# Codes of DLPack: 0 int, 1 uint, 2 float, 4 bfloat.
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


def read_array(data: memoryview, start: int, source: str) -> tuple[NDArray[Any], str, int]:
    """The array that starts at byte `start`, Relay's name of its dtype, and the position after it.

    source: the name of the data in errors. The array owns its data. Raises RelayError if the bytes are not an array;
    nothing is allocated for a size beyond the bytes."""
    if len(data) - start < _HEADER.size:
        raise _invalid(source, f"{len(data) - start} bytes are left where an array starts")
    magic, _, _, _, rank, code, bits, lanes = _HEADER.unpack_from(data, start)
    if magic != _MAGIC:
        raise _invalid(source, f"an array starts with {magic:#x} and not with {_MAGIC:#x}")
    if not 0 <= rank <= MAX_DIMENSIONS:
        raise _invalid(source, f"an array of {rank} dimensions")
    dtype = _dtype(code, bits, lanes, source)
    position = start + _HEADER.size
    if len(data) - position < 8 * (rank + 1):
        raise _invalid(source, "the shape of an array is cut off")
    shape = struct.unpack_from(f"<{rank}q", data, position)
    position += 8 * rank
    (length,) = _INT64.unpack_from(data, position)
    position += 8
    kind = np.dtype(NUMPY_DTYPES[dtype])
    if array_bytes(shape, kind.itemsize) != length:
        raise _invalid(source, f"an array of shape {shape} and {dtype} has {length} bytes of data")
    if length > len(data) - position:
        raise _invalid(source, f"an array of {length} bytes is cut off after {len(data) - position}")
    words: NDArray[Any] = np.frombuffer(data, "<u1" if dtype == "bool" else kind, length // kind.itemsize, position)
    values: NDArray[Any] = np.not_equal(words, 0) if dtype == "bool" else np.array(words)
    return np.reshape(values, shape), dtype, position + length


def _dtype(code: int, bits: int, lanes: int, source: str) -> str:
    name = "bool" if (code, bits) == (1, 1) else f"{_KINDS.get(code, 'unknown')}{bits}"
    if name not in NUMPY_DTYPES or lanes != 1:
        raise _invalid(source, f"an array of type code {code}, {bits} bits and {lanes} lanes")
    return name


def _invalid(source: str, problem: str) -> RelayError:
    return RelayError("relay", f"{source}: {problem}", "integers, floats or bool in TVM's binary form")
