"""The common parts of the formats of saved programs: arrays and machine code."""

from __future__ import annotations

from typing import Final

from meta.eager.ndarray import NDArray
from meta.errors import NotSupportedError
from meta.files import safetensors
from meta.vm.build.executables import Loaded, shared_library
from meta.vm.lower.choose import Source

PROGRAM: Final = "meta.program"
"""The name of a program's description among the texts of a file."""


def library_of(source: Source, loaded: Loaded, *, fuse: bool) -> bytes:
    """The machine code of a program as a shared library. Raises NotSupportedError without a linker."""
    code = shared_library(source, loaded, fuse=fuse)
    if code is None:
        raise NotSupportedError(
            "save", "the program cannot be linked", "a machine with a linker", "install one: ld, ld.lld, gcc or clang"
        )
    return code


def array_entry(name: str, x: NDArray) -> safetensors.ArrayEntry:
    return safetensors.ArrayEntry(name, x.dtype, lambda: x.detach().numpy())
