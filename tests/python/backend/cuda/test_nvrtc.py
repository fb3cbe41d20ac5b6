"""The headers that take the place of CUDA's, by a C++ compiler of this machine."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from meta.backend.cuda import nvrtc

ASSERTIONS = """#include <cuda/std/type_traits>
using namespace cuda::std;
static_assert(is_integral<const int>::value && is_integral<bool>::value && is_integral<unsigned long long>::value);
static_assert(!is_integral<float>::value && !is_integral<int*>::value && !is_integral<void>::value);
static_assert(is_floating_point<double>::value && is_floating_point<volatile float>::value);
static_assert(!is_floating_point<long>::value);
static_assert(is_signed<float>::value && is_signed<signed char>::value && !is_signed<unsigned>::value);
static_assert(is_unsigned<bool>::value && is_unsigned<unsigned char>::value && !is_unsigned<double>::value);
static_assert(!is_signed<int*>::value && !is_unsigned<int*>::value);
static_assert(is_same<int, int>::value && !is_same_v<int, long> && !is_same_v<int, const int>);
static_assert(is_same_v<conditional<true, int, float>::type, int>);
static_assert(is_same_v<conditional<false, int, float>::type, float>);
static_assert(is_same_v<enable_if<true>::type, void> && is_same_v<enable_if<true, int>::type, int>);
template <class T> constexpr typename enable_if<is_integral<T>::value, bool>::type whole(T) { return true; }
template <class T> constexpr typename enable_if<is_floating_point<T>::value, bool>::type whole(T) { return false; }
static_assert(whole(1) && !whole(1.0f));
"""


def test_type_traits_follow_the_standard(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this machine has no C++ compiler")
    for name, text in nvrtc.HEADERS.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    source = tmp_path / "assertions.cpp"
    source.write_text(ASSERTIONS, encoding="utf-8")
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", f"-I{tmp_path}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_stack_sizes_of_kernels() -> None:
    """A cubin of two kernels: the attributes of one section, with one of another form and others of no interest."""
    names = b"\0small\0large\0"
    symbols = b"".join(struct.pack("<I20x", offset) for offset in (0, 1, 7))
    facts = [(4, 0x12, struct.pack("<II", 2, 4096)), (3, 0x1B, b""), (4, 0x2F, struct.pack("<II", 1, 255)),
             (4, 0x12, struct.pack("<II", 1, 8))]  # fmt: skip
    info = b"".join(struct.pack("<BBH", form, kind, len(data)) + data for form, kind, data in facts)
    header, contents, table = 64, names + symbols + info, b"\0" * 64
    place = header
    for kind, data, link in ((3, names, 0), (2, symbols, 1), (0x70000000, info, 2)):
        table += struct.pack("<4xI16xQQI20x", kind, place, len(data), link)
        place += len(data)
    start = struct.pack("<40xQ12xH2x", place, 4)
    assert nvrtc.stack_sizes(start + contents + table) == {"small": 8, "large": 4096}
