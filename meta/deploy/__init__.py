"""Programs for C and for other machines, without Python.

description      the arguments and results of a program, for C code
objects          the planned program and the machine code of its kernels for a CPU
shared_library   a program as a shared library for TVM's runtime
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from meta.files.atomic import Path
    from meta.vm.program import Program

WRITERS: Final = {"library": "meta.deploy.shared_library"}
"""Format of `Executor.save` -> the module whose `write(path, name, programs, *, fuse)` writes it, and returns the
SHA-256 of the file in hex."""


def write(path: Path, name: str, programs: Sequence[Program], *, fuse: bool, format: str) -> str:
    """Write a program in a format of `WRITERS`. See `Executor.save`."""
    return import_module(WRITERS[format]).write(path, name, programs, fuse=fuse)
