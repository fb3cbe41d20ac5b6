"""Programs for C and for other machines, without Python and without TVM.

objects     the planned program and the machine code of its kernels for a CPU
tables      tensors, sizes and arguments of kernels as tables
sizes       symbolic sizes as expressions in C
frames      where the tensors of a function are
processor   the check that a processor has the instructions of the kernels
functions   lists of kernel calls, with branches and loops, as functions in C
emit        a program as one C file, with its header
toolchain   compilers in C for other machines
templates   an example, a Makefile and a pkg-config file
package     folders, archives and libraries, which `Executor.save` writes

runtime/ has the sources that programs are linked with: opening and running them, threads, and files of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from meta.files.atomic import Path
    from meta.vm.program import Program

WRITERS: Final = ("c", "archive", "library")
"""The formats of `Executor.save` for C."""


def write(
    path: Path, name: str, programs: Sequence[Program], *, fuse: bool, format: str, symbol: str = "",
    embed: bool = False,
) -> str:  # fmt: skip
    """Write a program in a format of `WRITERS`; returns a SHA-256 of it, in hex. See `Executor.save`.

    symbol: what the program is called in C, by default as the file.  embed: put the weights into the code.
    Raises ArgumentError for an executor with several programs, NotSupportedError for what C cannot call and without a
    compiler, FileError for files that cannot be written."""
    from meta.deploy import package  # with the compiler

    return package.write(path, name, programs, fuse=fuse, format=format, symbol=symbol, embed=embed)
