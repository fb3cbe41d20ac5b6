"""Files in the safetensors format: bytes, dtypes, interoperability, and files that are damaged or hostile."""

from __future__ import annotations

import importlib
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.dtype import ALL
from meta.errors import FileError
from meta.limits import MAX_HEADER


def _file(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _array(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_bytes_follow_the_format(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    meta.save(path, {"b": meta.array([True]), "w": meta.array([1.0, -2.0])})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header == {
        "__metadata__": {"format": "meta"},
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "BOOL", "shape": [1], "data_offsets": [8, 9]},
    }
    assert data[8 + length :] == np.array([1.0, -2.0], "<f4").tobytes() + b"\x01"


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype != "complex128"])
def test_every_dtype_and_shape_keeps_its_bits(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = np.random.default_rng(0).integers(0, 256, 24, "uint8")
    values = values % 2 if dtype == "bool" else values
    host = values.view(meta.dtype.to_numpy(dtype))
    arrays = {
        "flat": host,
        "matrix": host.reshape(3, -1).T,
        "scalar": host[:1].reshape(()),
        "empty": host[:0].reshape(0, 5),
    }
    meta.save(path, {name: meta.array(x) for name, x in arrays.items()})
    loaded = meta.load(path)
    assert {name: (x.shape, x.dtype) for name, x in loaded.items()} == {n: (x.shape, dtype) for n, x in arrays.items()}
    for name, x in arrays.items():
        assert loaded[name].numpy().tobytes() == np.array(x, order="C").tobytes(), name


def test_files_of_other_programs(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(_file({"__metadata__": {"format": "pt"}, "w": _array(), "e": _array([0], [8, 8])}, b"\0" * 8))
    loaded = meta.load(path)
    assert loaded["w"].tolist() == [0.0, 0.0]
    assert loaded["e"].shape == (0,)


def test_the_reference_implementation_reads_and_writes_it(tmp_path: Path) -> None:
    theirs = importlib.import_module("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    meta.save(path, {"w": meta.array([[1.0, 2.0]]), "n": {"step": 3, "v": meta.array([7])}})
    arrays = theirs.load_file(path)
    assert sorted(arrays) == ["n.v", "w"]
    assert arrays["w"].tolist() == [[1.0, 2.0]]
    theirs.save_file({"w": np.ones((2, 3), "float16")}, path)
    assert meta.load(path)["w"].numpy().tolist() == [[1.0] * 3] * 2


HEADER = {"w": _array()}
BROKEN = {
    "empty": (b"", "the file has 0 bytes"),
    "short": (b"\x01\0\0", "the file has 3 bytes"),
    "header cut": (_file(HEADER)[:20], "a header of 61 bytes in a file of 20"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "a header of 9223372036854775808 bytes"),
    "foreign": (b"PK\x03\x04" + b"\0" * 60, "a header of"),
    "no JSON": (_file(b"{'w': 1}"), "invalid JSON in header: key must be a string"),
    "no UTF-8": (_file(b'{"\xff": 1}'), "invalid UTF-8 in header"),
    "deep": (_file(b"[" * 100_000), "invalid JSON in header: invalid type: sequence"),
    "number": (_file(b'{"w": ' + b"9" * 5000 + b"}"), "invalid JSON in header: number out of range"),
    "list": (_file([1]), "invalid JSON in header: invalid type: sequence"),
    "metadata": (_file({"__metadata__": {"a": 1}}), "invalid type: integer `1`, expected a string"),
    "entry": (_file({"w": {"dtype": "F32"}}), "missing field `shape`"),
    "shape": (_file({"w": _array([-2])}), "invalid value: integer `-2`"),
    "bool shape": (_file({"w": _array([True], [0, 4])}, b"\0" * 4), "invalid type: boolean `true`"),
    "overflow": (_file({"w": _array([2**62, 2**62])}), "overflow computing buffer size"),
    "too large": (_file({"w": _array([0, 2**62, 2**62], [0, 0])}), "array is too big"),
    "dimensions": (_file({"w": _array([1] * 70, [0, 4])}, b"\0" * 4), "maximum supported dimension"),
    "offsets": (_file({"w": _array([2], [0, 4])}, b"\0" * 4), "invalid shape, data type, or offset for tensor"),
    "offset types": (_file({"w": _array([2], [0.0, 8])}, b"\0" * 8), "invalid type: floating point"),
    "data cut": (_file(HEADER, b"\0" * 7), "file not fully covered"),
    "more data": (_file(HEADER, b"\0" * 9), "file not fully covered"),
    "gap": (_file({"w": _array([2], [4, 12])}, b"\0" * 12), "invalid offset for tensor `w`"),
    "shared bytes": (_file({"a": _array(), "b": _array()}, b"\0" * 8), "invalid offset for tensor `"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    data, problem = BROKEN[name]
    path.write_bytes(data)
    with pytest.raises(FileError, match=problem) as caught:
        meta.load(path)
    assert caught.value.summary.startswith(f"[load] {path} is not a valid file: ")
    assert caught.value.expected == "a whole file in the safetensors format, as meta.save writes it"
    assert caught.value.location.startswith(__file__)


def test_dtypes_that_the_format_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileError, match=r"\[save\] 'w' has dtype complex128; expected bool, .*; save meta.view_as_real"
    ):
        meta.save(tmp_path / "x.safetensors", {"w": meta.ones((2,), dtype="complex128")})


def test_other_dtypes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(_file({"w": _array([8], [0, 8], "F8_E4M3")}, b"\0" * 8))
    with pytest.raises(FileError, match=r"'w' in .* has dtype 'F8_E4M3'; expected one of BOOL, U8,"):
        meta.load(path)


def test_altered_files_never_do_more_than_fail(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    meta.save(
        path, {"model": {"w": meta.ones((3, 2)), "b": meta.ones((3,), dtype="bool")}, "step": [1, 2.5, None, ("a",)]}
    )
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])]))
        try:
            meta.load(path)
        except FileError as error:
            assert str(path) in str(error)  # noqa: PT017  # many files load, since a changed value is valid


def test_bools_of_other_bytes_are_true(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(_file({"b": _array([3], [0, 3], "BOOL")}, b"\x00\x01\x02"))
    assert meta.load(path)["b"].numpy().view("uint8").tolist() == [0, 1, 1]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*missing: no such file or directory; expected a file that you"):
        meta.load(tmp_path / "missing")
    with pytest.raises(FileError, match=r"is not a regular file|is a directory"):
        meta.load(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        meta.load("a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(FileError, match="is not a regular file; expected the path of a file"):
            meta.load(tmp_path / "fifo")


def test_headers_that_could_not_be_read_again_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=f"expected at most {MAX_HEADER}; save long lists of numbers as arrays"):
        meta.save(tmp_path / "x", ["x" * MAX_HEADER])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "header",
    [
        b'{"w":%s,"w":%s}',
        b'{"w":%s,"v":%s,"w":%s}',
        b'{"__metadata__":{"a":"1"},"w":%s,"__metadata__":{"a":"2"}}',
        b'{"__metadata__":{"a":"1","a":"2"},"w":%s}',
        b'{"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        b'{"w":%s,"\\u0077":%s}',
    ],
)
def test_names_occur_once(header: bytes, tmp_path: Path) -> None:
    """A reader that takes the first and one that takes the last would see different arrays."""
    path = tmp_path / "x.safetensors"
    entry = json.dumps(_array()).encode()
    path.write_bytes(_file(header.replace(b"%s", entry), b"\0" * 8))
    with pytest.raises(FileError, match=r"is not a valid file: .*(occurs twice|duplicate field|invalid offset)"):
        meta.load(path)
