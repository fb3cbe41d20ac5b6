"""Compilation of CUDA source by NVRTC, with IEEE arithmetic.

TVM's own callback enables fast math: powers of negative numbers are NaN, denormals are zero and exponentials lose half
of their digits. `install` replaces that callback.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda.bindings import bindings
from meta.backend.tvm import adapter as tvm
from meta.errors import DeviceError

_PREAMBLE: Final = """#include <cuda/std/cstdint>
#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
"""
_TYPE_TRAITS: Final = """#pragma once
namespace cuda { namespace std {
template <class T, T V> struct integral_constant { static constexpr T value = V; using type = integral_constant; };
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T, class... Types>
inline constexpr bool is_one_of = (is_same_v<typename remove_cv<T>::type, Types> || ...);
template <class T> struct is_floating_point : integral_constant<bool, is_one_of<T, float, double>> {};
template <class T> struct is_integral : integral_constant<bool, is_one_of<T, bool, char, signed char, unsigned char,
    wchar_t, char16_t, char32_t, short, unsigned short, int, unsigned int, long, unsigned long, long long,
    unsigned long long>> {};
template <class T, bool = is_integral<T>::value || is_floating_point<T>::value> struct is_signed : false_type {};
template <class T> struct is_signed<T, true> : integral_constant<bool, (T(-1) < T(0))> {};
template <class T> struct is_unsigned : integral_constant<bool, is_integral<T>::value && !is_signed<T>::value> {};
template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
}}
"""
HEADERS: Final = {"cuda/std/type_traits": _TYPE_TRAITS}
"""Headers by name that take the place of CUDA's, with what TVM's sources use of them. NVRTC needs ten times as long for
CUDA's as for most kernels."""
_OPTIONS: Final = (
    "-default-device", "--device-int128", "--std=c++17",
    *(f"-U__CUDA_NO_{kind}__" for kind in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_OPERATORS",
                                           "BFLOAT16_CONVERSIONS", "BFLOAT162_OPERATORS", "BFLOAT162_CONVERSIONS")),
    "-D__NV_SILENCE_DEPRECATION_BEGIN=", "-D__NV_SILENCE_DEPRECATION_END=",
    "-D__NV_SILENCE_HOST_DEPRECATION_BEGIN=", "-D__NV_SILENCE_HOST_DEPRECATION_END=",
)  # fmt: skip


@cache
def install() -> None:
    """Have TVM compile CUDA with `compile_source`."""
    tvm.load()
    tvm.register_global_func("tvm_callback_cuda_compile", compile_source, override=True)


def compile_source(code: str) -> bytes:
    """Compile CUDA source to a cubin for the GPU of the current target.

    Raises DeviceError with the compiler's log if the source does not compile, and if NVRTC is missing."""
    nvrtc = bindings("nvrtc")
    version = tvm.compute_version(tvm.Target.current(allow_none=True))
    options = [f"--gpu-architecture=sm_{version.replace('.', '')}", *_OPTIONS, *(f"-I{p}" for p in _include_folders())]
    names, texts = zip(*((name.encode(), text.encode()) for name, text in HEADERS.items()), strict=True)
    source = (_PREAMBLE + code).encode()
    status, program = nvrtc.nvrtcCreateProgram(source, b"meta.cu", len(names), list(texts), list(names))
    _check(status, "cannot create a program")
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if status:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError("nvrtc", f"a kernel does not compile: {_first_error(log.decode(errors='replace'))[:2000]}")
    status, size = nvrtc.nvrtcGetCUBINSize(program)
    _check(status, "the program has no machine code")
    binary = bytearray(size)
    nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(binary)


def stack_sizes(cubin: bytes) -> dict[str, int]:
    """The bytes of local memory that a thread of each kernel of a cubin needs. The driver reserves as many for every
    thread that the GPU can hold, and keeps them: 32 KiB are 8 GiB where 132 multiprocessors have 2048 threads each.

    Read from the attributes of kernels in the sections `.nv.info`, as `cuobjdump -elf` shows them."""
    minimum_stack, with_value, row, symbol_row = 0x12, 4, 64, 24
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    count = struct.unpack_from("<H", cubin, 0x3C)[0]
    # Of each section: type, offset, bytes, and the section that it refers to.
    sections = [struct.unpack_from("<4xI16xQQI", cubin, table + row * i) for i in range(count)]
    symbols = next(each for each in sections if each[0] == 2)
    names = sections[symbols[3]][1]

    def name(symbol: int) -> str:
        start = names + struct.unpack_from("<I", cubin, symbols[1] + symbol_row * symbol)[0]
        return cubin[start : cubin.index(0, start)].decode()

    sizes: dict[str, int] = {}
    for kind, offset, length, _ in sections:
        end = offset + length if kind == 0x70000000 else offset
        while offset < end:
            form, attribute, width = struct.unpack_from("<BBH", cubin, offset)
            if form == with_value and attribute == minimum_stack:
                symbol, size = struct.unpack_from("<II", cubin, offset + 4)
                sizes[name(symbol)] = size
            offset += 4 + (width if form == with_value else 0)
    return sizes


def _first_error(log: str) -> str:
    """A compiler's log from its first error on: warnings on CUDA's headers come before it."""
    lines = log.splitlines()
    return "\n".join(lines[next((i for i, line in enumerate(lines) if "): error" in line), 0) :])


def _check(status: Any, problem: str) -> None:
    if status:
        raise DeviceError("nvrtc", f"{problem}: {status!r}")


@cache
def _include_folders() -> tuple[Path, ...]:
    """Folders with CUDA's headers."""
    root = Path(tvm.find_cuda_path())
    folders = [root / "include", *sorted(root.glob("targets/*/include"))]
    folders += [folder / "cccl" for folder in folders]
    return tuple(folder for folder in folders if folder.is_dir())
