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
tuning      other choices of the schedules of kernels, where they win
measure     times of kernels on another machine
browser     folders for browsers, with a module in JavaScript and a page
package     folders, archives and libraries, which `Executor.save` writes

runtime/ has the sources that programs are linked with: opening and running them, threads, and files of weights;
web/ the module and the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from meta.backend.tvm.choices import TuneReport
    from meta.backend.tvm.target import KnobChoices
    from meta.eager.ndarray import NDArray
    from meta.files.atomic import Path
    from meta.vm.program import Program

WRITERS: Final = ("c", "archive", "library", "web")
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


def tune(
    program: Program, inputs: Sequence[NDArray], seconds: float, *, fuse: bool = True, run: Sequence[str] = ()
) -> TuneReport:
    """Tune the kernels of a program (of `executor.program(...)`) on the machine that it is compiled for, by programs in
    C that a command runs. `report.save(path)` writes the choices for `meta.vm.compile(..., tuning=path)`.

    inputs: arrays of the sizes to tune for.  run: the command and its arguments; it gets the path of a program and its
    argument, and may be `ssh` and a host. Without it, programs run here.
    Raises ArgumentError for seconds that are not positive, NotSupportedError for a machine that needs a command or has
    no compiler in C, KernelError, with what it printed, if the command fails."""
    from meta.backend.tvm import cpu as cpus
    from meta.deploy.measure import board
    from meta.deploy.tuning import session

    session.check_seconds(seconds)
    source = program.source
    if not run:
        cpus.check_runs_here("tune", source.cpu)
    sizes = session.open_sizes(program, inputs)
    measure = board(run, source.cpu or cpus.host(), source.target, sizes)
    place = f"{' '.join(run)} in C"
    return session.tune(program, inputs, seconds, fuse=fuse, measure=measure, place=place)


def tune_here(
    program: Program, inputs: Sequence[NDArray], seconds: float, compiled: Callable[[KnobChoices], Program],
    before: KnobChoices | None, fuse: bool,
) -> TuneReport:  # fmt: skip
    """Tune on this machine, see `Executor.tune`. compiled: gives the program with other choices.
    before: the choices that it is compiled with."""
    from meta.deploy.tuning import session

    return session.tune_here(program, inputs, seconds, compiled, before, fuse)
