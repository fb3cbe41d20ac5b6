"""Compilation of CUDA source by NVRTC, with IEEE arithmetic.

TVM's own callback enables fast math: powers of negative numbers are NaN, denormals are zero and exponentials lose half
of their digits. `install` replaces that callback.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from meta.backend.cuda.bindings import bindings
from meta.backend.tvm import adapter as tvm
from meta.errors import DeviceError

_PREAMBLE: Final = """#include <cuda/std/cstdint>
#include <cuda/std/limits>
#ifndef INFINITY
#define INFINITY (::cuda::std::numeric_limits<float>::infinity())
#endif
"""
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
    status, program = nvrtc.nvrtcCreateProgram((_PREAMBLE + code).encode(), b"meta.cu", 0, None, None)
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
