"""Large weights of a serialised model, which are read into arrays directly: protobuf would copy them twice.

A message of protobuf is a list of fields: a key (field number and wire type), then a number or a length and bytes.
`read_model` walks the model's graph and its initializers, reads large `raw_data` from the file, and leaves everything
else to protobuf. Protobuf also gets the whole of a model that does not look as expected, to report what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from meta.files.into_memory import allocate
from meta.limits import MAX_DIMENSIONS

Arrays = dict[str, npt.NDArray[np.generic]]

SMALLEST = 1 << 16
"""Bytes of the smallest weights that are read apart."""

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _DOC = 1, 2, 8, 9, 12
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 10: "<f2", 11: "<f8",
           12: "<u4", 13: "<u8"}  # fmt: skip
"""NumPy's dtypes by the number of ONNX's, for those whose memory both share."""


class _Unexpected(Exception):
    """The model is left to protobuf."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message. start, end: of all of it.  content: where its bytes start.  value: of a number."""

    number: int
    wire: int
    start: int
    content: int
    end: int
    value: int = 0


@dataclass(slots=True)
class _WeightReader:
    """A file that is walked. arrays: the weights that have been read."""

    file: BinaryIO
    arrays: Arrays = field(default_factory=Arrays)

    def varint(self) -> int:
        out = shift = 0
        while shift < 64:
            byte = self.file.read(1)
            if not byte:
                raise _Unexpected
            out |= (byte[0] & 127) << shift
            if byte[0] < 128:
                return out
            shift += 7
        raise _Unexpected

    def bytes_of(self, start: int, end: int) -> bytes:
        self.file.seek(start)
        data = self.file.read(end - start)
        if len(data) != end - start:
            raise _Unexpected
        return data

    def fields(self, start: int, end: int) -> Iterator[_Field]:
        """The fields of the message between two positions of the file."""
        while start < end:
            self.file.seek(start)
            key = self.varint()
            value = self.varint() if key & 7 in (_VARINT, _BYTES) else 0
            content = self.file.tell()
            sizes = {_VARINT: 0, _FIXED64: 8, _BYTES: value, _FIXED32: 4}
            if key & 7 not in sizes or content + sizes[key & 7] > end:
                raise _Unexpected
            stop = content + sizes[key & 7]
            yield _Field(key >> 3, key & 7, start, content, stop, value)
            start = stop

    # --- messages, rewritten without the weights ---------------------------------------------------------------------

    def model(self, size: int) -> bytes:
        parts: list[bytes] = []
        for part in self.fields(0, size):
            is_graph = part.number == _MODEL_GRAPH and part.wire == _BYTES
            parts += self.graph(part) if is_graph else [self.bytes_of(part.start, part.end)]
        return b"".join(parts)

    def graph(self, graph: _Field) -> list[bytes]:
        parts: list[bytes] = []
        copied_to = graph.content
        for part in self.fields(graph.content, graph.end):
            if part.number != _GRAPH_INITIALIZER or part.wire != _BYTES or part.end - part.content < SMALLEST:
                continue
            rewritten = self.tensor(part)
            if rewritten is not None:
                parts += [self.bytes_of(copied_to, part.start), *rewritten]
                copied_to = part.end
        parts.append(self.bytes_of(copied_to, graph.end))
        return _message(_MODEL_GRAPH, parts)

    def tensor(self, tensor: _Field) -> list[bytes] | None:
        """An initializer without its data, which becomes an array; None for one that is not read apart."""
        fields = list(self.fields(tensor.content, tensor.end))
        raw = [f for f in fields if f.number == _RAW_DATA]
        dtypes = [f for f in fields if f.number == _DATA_TYPE]
        names = [f for f in fields if f.number == _NAME]
        others = {f.number for f in fields} - {_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _DOC}
        if others or any(len(each) != 1 for each in (raw, dtypes, names)) or raw[0].wire != _BYTES:
            return None
        size, dtype = raw[0].end - raw[0].content, DTYPES.get(dtypes[0].value)
        if size < SMALLEST or dtype is None or dtypes[0].wire != _VARINT:
            return None
        dims = [n for f in fields if f.number == _DIMS for n in self.numbers(f)]
        name = self.bytes_of(names[0].content, names[0].end).decode("utf-8", "strict")
        if len(dims) > MAX_DIMENSIONS or math.prod(dims) * np.dtype(dtype).itemsize != size or name in self.arrays:
            raise _Unexpected
        array = allocate(dims, dtype)
        self.file.seek(raw[0].content)
        if self.file.readinto(memoryview(array).cast("B")) != size:  # type: ignore[attr-defined]
            raise _Unexpected
        self.arrays[name] = array
        rest = [self.bytes_of(f.start, f.end) for f in fields if f is not raw[0]]
        return _message(_GRAPH_INITIALIZER, rest)

    def numbers(self, part: _Field) -> list[int]:
        """The values of a repeated field of numbers, packed or not."""
        if part.wire == _VARINT:
            return [part.value]
        if part.wire != _BYTES:
            raise _Unexpected
        out: list[int] = []
        self.file.seek(part.content)
        while self.file.tell() < part.end:
            out.append(self.varint())
        return out


def read_model(file: BinaryIO, size: int) -> tuple[bytes, Arrays]:
    """A serialised model of `size` bytes without its large weights, and those by the names of their initializers."""
    reader = _WeightReader(file)
    try:
        return reader.model(size), reader.arrays
    except (_Unexpected, UnicodeDecodeError):
        file.seek(0)
        return file.read(), {}


def _message(number: int, parts: list[bytes]) -> list[bytes]:
    """A field that is a message of these parts."""
    return [_varint(number << 3 | _BYTES), _varint(sum(map(len, parts))), *parts]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
