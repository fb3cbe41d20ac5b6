"""Kernels from sources in C++ and CUDA, by the compiler of `tvm_ffi.cpp`."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from meta.backend.tvm import library, runtime
from meta.cache import default_cache
from meta.errors import ArgumentError, KernelError, NotSupportedError
from meta.op.user.kernels.library import KernelLibrary, opened

_SUBJECT = "kernels.compile"
_SUFFIX = ".so"


def compile(
    source: str = "", functions: Sequence[str] = (), *, cuda: str = "", flags: Sequence[str] = ()
) -> KernelLibrary:
    """Compile functions that follow tvm-ffi's ABI, for `from_ffi` of a dialect.

        built = meta.kernels.compile('''
            void double_it(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {...}
        ''', functions=["double_it"])

    source: C++; the headers of tvm-ffi are included.  cuda: further source for nvcc.  flags: for the C++ compiler,
        such as "-O3".  functions: the functions to export, which `source` declares.
    The code is kept in the cache on disk by a digest of all this. It runs in this process: compile only what you trust.

    Raises ArgumentError for arguments of a wrong kind, NotSupportedError without a compiler or ninja, KernelError, with
    the first errors of the compiler, for a source that does not compile."""
    for name, text in (("source", source), ("cuda", cuda)):
        if not isinstance(text, str) or not (source or cuda):
            raise ArgumentError(_SUBJECT, f"{name} is {text!r}"[:200], "a source, as text")
    exported = tuple(functions)
    if isinstance(functions, str) or not exported or not all(str(f).isidentifier() for f in exported):
        raise ArgumentError(_SUBJECT, f"functions is {functions!r}"[:200], "a list of names of functions in the source")
    facts = (source, cuda, exported, tuple(flags), runtime.ffi().__version__, sys.platform, platform.machine())
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    disk, key = default_cache(), f"kernels_{digest[:48]}"
    code = None if disk is None else library.read(disk, key)
    if code is None:
        code = _compiled(source, cuda, exported, tuple(flags))
        if disk is not None:
            disk.put(key, code, _SUFFIX)
    return KernelLibrary("a compiled source", "", None, digest, opened(code, "the compiled source", digest))


def _compiled(source: str, cuda: str, functions: tuple[str, ...], flags: tuple[str, ...]) -> bytes:
    """The shared library of the sources."""
    for program, what in (("ninja", "ninja"), ("nvcc", "CUDA's compiler")):
        if (program != "nvcc" or cuda) and shutil.which(program) is None:
            raise NotSupportedError(_SUBJECT, f"{program} is missing", what, "install it: pip install ninja, or CUDA")
    compiler = runtime.import_module("tvm_ffi.cpp")
    with library.private_folder() as folder:
        try:
            path = compiler.build_inline(
                "kernels", cpp_sources=source or None, cuda_sources=cuda or None, functions=list(functions),
                extra_cflags=list(flags), build_directory=str(folder),
            )  # fmt: skip
        except RuntimeError as error:
            lines = str(error).splitlines()
            problems = [line.strip() for line in lines if "error" in line.lower() or "not found" in line][:4]
            problem = f"the source does not compile: {'; '.join(problems or lines[:4])}"[:1000]
            raise KernelError(_SUBJECT, problem, "C++ that declares the functions by tvm-ffi's types") from error
        return Path(path).read_bytes()
