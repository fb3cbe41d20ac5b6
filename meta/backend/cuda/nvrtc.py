"""CUDA source to machine code by NVRTC, with IEEE arithmetic.

TVM's own callback asks for fast mathematics, where the power of a negative number is NaN, denormals are zero and
exponentials have half of their digits. `install` puts this one in its place.
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
    """Have TVM compile CUDA with `compiled`."""
    tvm.load()
    tvm.register_global_func("tvm_callback_cuda_compile", compiled, override=True)


def compiled(code: str) -> bytes:
    """The cubin of CUDA source, for the GPU that the current target names. Raises DeviceError, with the compiler's
    words, for source that does not compile or where there is no NVRTC."""
    nvrtc = bindings("nvrtc")
    version = tvm.compute_version(tvm.Target.current(allow_none=True))
    options = [f"--gpu-architecture=sm_{version.replace('.', '')}", *_OPTIONS, *(f"-I{p}" for p in _includes())]
    status, program = nvrtc.nvrtcCreateProgram((_PREAMBLE + code).encode(), b"meta.cu", 0, None, None)
    _check(status, "cannot start")
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if status:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError("nvrtc", f"a kernel does not compile: {log.decode(errors='replace')[:2000]}")
    status, size = nvrtc.nvrtcGetCUBINSize(program)
    _check(status, "made no machine code")
    binary = bytearray(size)
    nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(binary)


def _check(status: Any, what: str) -> None:
    if status:
        raise DeviceError("nvrtc", f"{what}: {status!r}")


@cache
def _includes() -> tuple[Path, ...]:
    """Folders of CUDA's headers."""
    root = Path(tvm.find_cuda_path())
    found = [root / "include", *sorted(root.glob("targets/*/include"))]
    found += [folder / "cccl" for folder in found]
    return tuple(folder for folder in found if folder.is_dir())
