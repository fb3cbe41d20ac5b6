"""Parameters of Relay programs: dicts, `.npz` and the binary of relay.save_param_dict."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.frontend import relay
from meta.frontend.relay import params as params_module
from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.params import read_params
from meta.interpreter.run import run
from tests.python.frontend.zip_files import shifted

MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
VALUES = {
    "layer1.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7, np.int64),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 4), np.uint8),
    "half": np.array([1.5, -2.0], np.float16),
}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 1}


def array_bytes(value: np.ndarray[Any, Any], **change: int) -> bytes:
    """One array as Relay-era TVM wrote it; `change` replaces fields of the header."""
    code, bits = (4, 16) if value.dtype == ml_dtypes.bfloat16 else (_CODES[value.dtype.kind], 8 * value.itemsize)
    if value.dtype == np.bool_:
        bits = 1
    header = {"magic": ARRAY_MAGIC, "rank": value.ndim, "code": code, "bits": bits, "lanes": 1, "length": value.nbytes}
    header |= change
    start = struct.pack("<QQiiiBBH", header["magic"], 0, 1, 0, *(header[k] for k in ("rank", "code", "bits", "lanes")))
    return start + struct.pack(f"<{value.ndim}qq", *value.shape, header["length"]) + value.tobytes()


def binary(values: dict[str, np.ndarray[Any, Any]]) -> bytes:
    out = [struct.pack("<QQQ", MAGIC, 0, len(values))]
    out += [struct.pack("<Q", len(name.encode())) + name.encode() for name in values]
    return b"".join([*out, struct.pack("<Q", len(values)), *map(array_bytes, values.values())])


def npz(**values: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def assert_same(actual: dict[str, np.ndarray[Any, Any]], expected: dict[str, np.ndarray[Any, Any]]) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        assert actual[name].shape == value.shape
        np.testing.assert_array_equal(actual[name], value)
        assert actual[name].flags.writeable


def test_binary(tmp_path: Path) -> None:
    values = VALUES | {"brain": np.array([1.0, -3.5], ml_dtypes.bfloat16)}
    assert_same(read_params(binary(values)), values)
    path = tmp_path / "model.params"
    path.write_bytes(binary(values))
    assert_same(read_params(path), values)
    assert_same(read_params(str(path)), values)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "model.npz"
    save(path, **VALUES)
    assert_same(read_params(path), VALUES)
    assert_same(read_params(path.read_bytes()), VALUES)


def test_npz_of_other_orders() -> None:
    value = np.arange(6.0).reshape(2, 3)
    values = read_params(npz(a=np.asfortranarray(value), b=value.astype(">f8")))
    assert_same(values, {"a": value, "b": value})
    assert values["a"].flags.c_contiguous


@pytest.mark.parametrize("kind", ["npz", "params"])
def test_large_arrays_are_read_once(kind: str, tmp_path: Path) -> None:
    """Reading takes the memory of the arrays, not that of the file and of copies besides."""
    path = tmp_path / f"large.{kind}"
    size = 1 << 17  # of float32: below the size from which arrays have pages of their own, which are not traced
    arrays = {f"w{i}": np.arange(i, i + size, dtype=np.float32) for i in range(16)}
    if kind == "npz":
        np.savez(path, **arrays)
    else:
        path.write_bytes(binary(arrays))
    tracemalloc.start()
    try:
        values = read_params(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_same(values, arrays)
    assert peak < 1.2 * sum(x.nbytes for x in arrays.values())


@pytest.mark.parametrize("kind", ["npz", "params"])
def test_arrays_with_pages_of_their_own(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"large.{kind}"
    arrays = {"a": np.arange(1 << 19, dtype=np.float32).reshape(2, -1), "b": np.ones((1 << 20) + 3, np.bool_)}
    path.write_bytes(npz(**arrays) if kind == "npz" else binary(arrays))
    assert_same(read_params(path), arrays)


def test_mapping() -> None:
    values = read_params({"a": [[1.0, 2.0]], "b": meta.array([1, 2]), "c": np.float32(3)})
    assert values["a"].shape == (1, 2)
    assert values["b"].tolist() == [1, 2]
    assert values["c"].dtype == np.float32


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (5, "params is int; expected a dict of arrays, the bytes of relay.save_param_dict, or a path"),
        ({1: [2.0]}, "params has a key of class int; expected names"),
        ({"w": object()}, r"params\['w'\] has dtype object; expected an array of numbers"),
        ({"w": "text"}, r"params\['w'\] has dtype <U4"),
        ({"w": [[1], [2, 3]]}, r"params\['w'\]: setting an array element"),
    ],
)
def test_what_is_no_params(params: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        read_params(params)


WHOLE = binary(VALUES)


def changed(**header: int) -> bytes:
    """A file of one array, with other numbers in the header of the array."""
    names = struct.pack("<QQQQ", MAGIC, 0, 1, 1) + b"w" + struct.pack("<Q", 1)
    return names + array_bytes(np.arange(3, dtype=np.int32), **header)


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def npy(shape: str, dtype: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


BROKEN = {
    "nothing": (b"", "neither an .npz nor the binary"),
    "text": (b'#[version = "0.0.5"]', "neither an .npz nor the binary"),
    "count": (struct.pack("<QQQ", MAGIC, 0, 2**63), "a length of 9223372036854775808 where 0 bytes are left"),
    "name": (struct.pack("<QQQQ", MAGIC, 0, 1, 2**40) + b"x" * 8, "a length of 1099511627776"),
    "name bytes": (struct.pack("<QQQQ", MAGIC, 0, 1, 1) + b"\xff" + b"\0" * 8, "name of parameter 0 is not UTF-8"),
    "names": (struct.pack("<QQQ", MAGIC, 0, 1) + struct.pack("<Q", 1) + b"w" + b"\0" * 8, "1 names and 0 arrays"),
    "array magic": (changed(magic=1), "an array starts with 0x1"),
    "rank": (changed(rank=10**6), "1000000 dimensions"),
    "negative rank": (changed(rank=-1), "-1 dimensions"),
    "code": (changed(code=3), "type code 3"),
    "bits": (changed(bits=7), "7 bits"),
    "lanes": (changed(lanes=4), "4 lanes"),
    "length": (changed(length=2**50), r"shape \(3,\) and int32 has 1125899906842624 bytes"),
    "cut": (WHOLE[:-1], "is cut off after"),
    "behind": (WHOLE + b"!", "1 bytes after the last parameter"),
    "zip": (b"PK\3\4", "BadZipFile"),
    "zip cut": (npz(**VALUES)[:200], "BadZipFile"),
    "zip of strange offsets": (shifted(npz(**VALUES), 2**64 - 1), "OverflowError|BadZipFile"),
    "pickle": (npz(a=np.array([{}], object)), r"dtype object; expected integers, floats and bool"),
    "record": (npz(a=np.zeros(2, "i4,f4")), "dtype "),
    "claimed shape": (zipped(("a.npy", npy("(1099511627776,)"))), r"shape \(1099511627776,\) and float32 in 128 bytes"),
    "negative shape": (zipped(("a.npy", npy("(-1,)"))), r"shape \(-1,\)"),
    "empty but too large": (zipped(("a.npy", npy(f"(0, {2**62}, {2**62})"))), r"shape \(0, 46116"),
    "sizes of the wrong class": (zipped(("a.npy", npy("(True, True)"))), r"shape \(True, True\)"),
    "axes": (zipped(("a.npy", npy(f"({'1,' * 70})"))), r"shape \(1, 1, "),
    "empty but too large in the binary": (
        binary({})[:16]
        + struct.pack("<QQ", 1, 1)
        + b"w"
        + struct.pack("<Q", 1)
        + struct.pack("<QQiiiBBHqqqq", 0xDD5E40F096B4A13F, 0, 1, 0, 3, 2, 32, 1, 0, 2**62, 2**62, 0),
        r"shape \(0, 46116\d+, 46116\d+\) and float32 has 0 bytes",
    ),
    "header": (zipped(("a.npy", npy("__import__('os')"))), "parameter 'a'|ValueError"),
    "keys of two classes": (zipped(("a.npy", npy("(3,), b'x': 1"))), "parameter 'a'|TypeError"),
    "no npy": (zipped(("a.npy", b"hello")), "ValueError"),
    "checksum": (npz(a=np.arange(3)).replace(b"\2" + b"\0" * 7, b"\3" + b"\0" * 7, 1), "its checksum does not match"),
    "member cut": (zipped(("a.npy", npy("(3,)", data=b"\0" * 11))), "12 bytes is cut off after 11"),
    "open bracket": (zipped(("a.npy", npy("(3,", data=b"\0" * 12))), "TokenError|SyntaxError|ValueError"),
    "method": (zipped(("a", b"\0"), compression=zipfile.ZIP_LZMA), "a compression that NumPy does not write"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name: str) -> None:
    data, words = BROKEN[name]
    with pytest.raises(RelayError, match=words):
        read_params(data)


def test_a_file_that_expands_beyond_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params_module, "MAX_EXPANSION_FREE", 1000)
    data = zipped(("a", b"\0" * 1_000_000), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(RelayError, match="bytes that expand to 1000000; expected arrays saved without compression"):
        read_params(data)


def test_every_cut_of_a_file_is_refused() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(RelayError):
            read_params(WHOLE[:end])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match=r"cannot read .*none\.params: No such file"):
        read_params(tmp_path / "none.params")


# --- names that Relay's printer changes ------------------------------------------------------------------------------

RENAMED = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %v0.weight: Tensor[(4, 3), float32], %v1.bias: Tensor[(4), float32]) {
  %0 = nn.dense(%x, %v0.weight, units=4);
  add(%0, %v1.bias)
}
"""
USERS = {"0.weight": np.arange(12, dtype="float32").reshape(4, 3), "1.bias": np.ones(4, "float32")}


@pytest.mark.parametrize("kind", ["dict", "npz", "params"])
def test_names_are_the_names_of_the_user(kind: str, tmp_path: Path) -> None:
    params: Any = USERS
    if kind == "npz":
        np.savez(tmp_path / "p.npz", **USERS)
        params = tmp_path / "p.npz"
    elif kind == "params":
        (tmp_path / "p.params").write_bytes(binary(USERS))
        params = tmp_path / "p.params"
    x = np.ones((2, 3), "float32")
    with meta.with_dialect(["reference"]):
        actual = run(relay.from_relay(RENAMED, params), x).numpy()
        model = relay.load(RENAMED, params)
        np.testing.assert_array_equal(model.infer_mode()(meta.array(x)).detach().numpy(), actual)
    np.testing.assert_array_equal(actual, x @ USERS["0.weight"].T + 1)
    assert sorted(model.state_dict()) == ["0.weight", "1.bias"]
    assert relay.from_relay(RENAMED, shapes={"x": (5, 3)}).main.body.type.shape == (5, 4)


def test_numbered_names_are_found() -> None:
    text = """#[version = "0.0.5"]
def @f(%w: Tensor[(2), float32]) -> Tensor[(2), float32] { exp(%w) }
def @main(%x: Tensor[(2), float32], %w1: Tensor[(2), float32]) { add(@f(%x), %w1) }
"""
    assert len(relay.from_relay(text, {"w": np.ones(2, "float32")}).main.params) == 1


@pytest.mark.parametrize(
    ("names", "arrays", "text"),
    [
        (
            ("v1", "v11"),
            ("v1", "1"),
            "params has '1', which Relay's text does not tell from v1; expected parameters of @main",
        ),
        (("w1", "w2"), ("w",), "params has 'w', which is not a parameter of @main; expected one of x, w1, w2"),
    ],
)
def test_names_that_could_mean_several_are_refused(names: tuple[str, ...], arrays: tuple[str, ...], text: str) -> None:
    params = "".join(f", %{name}: Tensor[(2), float32]" for name in names)
    source = f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]{params}) {{ %x }}'
    with pytest.raises(ArgumentError, match=text):
        relay.from_relay(source, dict.fromkeys(arrays, np.ones(2, "float32")))
