"""Loaded modules of kernels, and the functions that they export."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from meta.backend.foreign import KernelFunction
from meta.backend.tvm import library, runtime
from meta.errors import FileError, MissingAttribute, did_you_mean
from meta.records import record

_EXPORTED: Final = re.compile(rb"\0_?__tvm_ffi_([A-Za-z]\w*)(?=\0)")
"""A symbol of a function that follows tvm-ffi's ABI, in the table of names of a shared library."""


@record(eq=False)
class KernelLibrary:
    """Kernels by name: `library.relu`.

    name: the folder or module.  variant: the build variant, "" for one compiled here.  version: by its metadata, None
    without.  digest: SHA-256 in hex, of the files, or of the source and options it was compiled from.
    functions: the functions by name: `KernelFunction`s of tvm-ffi's ABI, or Python functions on torch tensors."""

    name: str
    variant: str
    version: int | None
    digest: str
    functions: Mapping[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Any:
        functions = object.__getattribute__(self, "functions")
        if name in functions:
            return functions[name]

        def hint() -> str:
            return did_you_mean(name, functions) or f"it has {', '.join(sorted(functions)) or 'none'}"

        raise MissingAttribute(f"the kernels of {self.name} have no function {name!r}", hint, name, self)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.functions})

    def __repr__(self) -> str:
        described = " ".join(filter(None, (self.variant, "" if self.version is None else f"version {self.version}")))
        return f"<KernelLibrary {self.name}: {', '.join(sorted(self.functions))}{described and f' ({described})'}>"


def opened(code: bytes, name: str, digest: str) -> dict[str, Callable[..., Any]]:
    """The functions of a shared library, which runs code as it loads. Raises FileError for one that does not load or
    has no functions."""
    names = sorted({match.decode() for match in _EXPORTED.findall(code)})
    if not names:
        raise FileError(
            "load", f"{name} exports no function of tvm-ffi's ABI", "symbols that begin with __tvm_ffi_",
            "export them by TVM_FFI_DLL_EXPORT_TYPED_FUNC, or load the torch variant of the kernels",
        )  # fmt: skip
    if code.startswith(b"\x7fELF") and len(code) < _length(code):
        raise FileError("load", f"{name} is cut off", f"{_length(code):,} bytes", "get it again")  # loading would crash
    try:
        module = runtime.keep_loaded(library.load_bytes(code))
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"{name} does not load: {error}"[:400]
        raise FileError("load", problem, "a shared library for this system, with the libraries it needs") from error
    return {function: KernelFunction(function, digest, module[function]) for function in names}


def _length(code: bytes) -> int:
    """The bytes that a file of ELF with 64 bits has at least: up to the end of its table of sections."""
    header = code[:64].ljust(64, b"\0")
    (start,), (size, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 58)
    return start + size * count
