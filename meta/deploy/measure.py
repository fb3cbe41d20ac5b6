"""Times of variants of a kernel on another machine: a small program in C that a command of the user runs.

The command gets the path of the program, `qemu-aarch64 -L /usr/aarch64-linux-gnu PROGRAM ROUNDS`, or copies it to where
it runs and runs it there. `ssh` gets it as the input of a shell that does both."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from meta.backend.tvm.library import compile_functions, compiling, object_code
from meta.deploy.objects import PREFIX
from meta.deploy.tables import dtype_code
from meta.deploy.toolchain import RUNTIME, Toolchain, toolchain
from meta.deploy.tuning.timing import parameters
from meta.errors import KernelError, NotSupportedError, shortened
from meta.records import record

if TYPE_CHECKING:
    from meta.backend.tvm.cpu import CpuTarget
    from meta.deploy.tuning.kernels import KernelVariant
    from meta.deploy.tuning.timing import Measure

_SOURCES: Final = ("program.c", "threads.c", "measure.c")
_SECONDS: Final = 600
"""Seconds that the command may take for a measurement."""
_THERE: Final = 'f=$(mktemp) && cat >"$f" && chmod +x "$f" && "$f" {rounds}; s=$?; rm -f "$f"; exit $s'
"""What a shell at the other end of ssh runs."""


@record(eq=False)
class Board:
    """Another machine. command: runs a program there, see the module.  target: of TVM.  sizes: values of symbolic
    sizes."""

    cpu: CpuTarget
    command: tuple[str, ...]
    target: Any
    sizes: Mapping[str, int]

    def measure(self, variants: Sequence[KernelVariant], rounds: int) -> list[float]:
        """Median seconds of a call of each variant, infinity for those that do not compile.

        Raises KernelError, with what it printed, if the command fails; NotSupportedError without a compiler in C for
        the machine."""
        codes: dict[int, bytes] = {}
        for i, variant in enumerate(variants):
            with suppress(KernelError), compiling("tune"):
                codes[i] = object_code(compile_functions({f"variant{i}": variant.function}, self.target))
        if not codes:
            return [inf] * len(variants)
        try:
            text = tables(list(codes), parameters(variants[0].function, self.sizes))
        except KeyError:
            return [inf] * len(variants)
        with TemporaryDirectory(prefix="meta-") as folder:
            program = _link(toolchain(self.cpu), Path(folder), text, list(codes.values()))
            lines = self._run(program, rounds).splitlines()
        times = dict(zip(codes, map(self._median, lines), strict=False))
        if len(times) < len(codes):
            raise self._failure(f"printed {len(lines)} lines, not {len(codes)}")
        return [times.get(i, inf) for i in range(len(variants))]

    def _run(self, program: Path, rounds: int) -> str:
        """What the program prints there."""
        is_ssh = Path(self.command[0]).name == "ssh" if self.command else False
        arguments = [_THERE.format(rounds=rounds)] if is_ssh else [str(program), str(rounds)]
        try:
            completed = subprocess.run(
                [*self.command, *arguments], input=program.read_bytes() if is_ssh else b"", capture_output=True,
                timeout=_SECONDS,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise self._failure(f"cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"takes more than {_SECONDS} s") from error
        if completed.returncode:
            output = completed.stderr.decode(errors="replace").strip()
            raise self._failure(f"ended with {completed.returncode}: {shortened(output)}")
        return completed.stdout.decode(errors="replace")

    def _median(self, line: str) -> float:
        try:
            return median(map(float, line.split())) / 1e9
        except ValueError as error:
            raise self._failure(f"printed {line!r:.60}") from error

    def _failure(self, problem: str) -> KernelError:
        command = " ".join(self.command) or "the measuring program"
        remedy = 'check it by hand: --run "ssh board", --run "qemu-aarch64 -L /usr/aarch64-linux-gnu"'
        return KernelError("tune", f"{command} {problem}", "a command that runs a program on the machine", remedy)


def board(command: Sequence[str], cpu: CpuTarget, target: Any, sizes: Mapping[str, int]) -> Measure:
    """Times variants on another machine. Raises NotSupportedError for a machine without a C runtime that runs there."""
    if cpu.system != "linux":
        raise NotSupportedError("tune", f"the program is for {cpu.triple}", "a target with Linux")
    return Board(cpu, tuple(command), target, sizes).measure


def tables(variants: Sequence[int], arguments: Sequence[tuple[tuple[int, ...], str] | int]) -> str:
    """The C code of what measure.c calls. variants: their numbers.  arguments: a shape and dtype, or a number."""
    shapes, views, places, numbers = list[str](), list[str](), list[str](), list[str]()
    for each in arguments:
        if isinstance(each, int):
            places.append(str(~len(numbers)))
            numbers.append(f"{each}LL")
            continue
        shape, dtype = each
        code, bits = dtype_code(dtype)
        places.append(str(len(views)))
        shapes.append(f"static int64_t shape{len(views)}[] = {{{', '.join(map(str, shape)) or '0'}}};")
        views.append(f"{{0, 1, 0, {len(shape)}, {code}, {bits}, 1, shape{len(views)}, 0, 0}}")
    names = [f"{PREFIX}variant{i}" for i in variants]
    lines = ['#include "meta_runtime.h"', *(f"extern meta_kernel {name};" for name in names), *shapes]
    lines += [
        f"meta_kernel *const meta_variants[] = {{{', '.join(names)}}};",
        f"const int32_t meta_variant_count = {len(names)}, meta_tensor_count = {len(views)};",
        f"const int32_t meta_argument_count = {len(places)};",
        f"meta_view meta_tensors[] = {{{', '.join(views) or '{0}'}}};",
        f"const int32_t meta_arguments[] = {{{', '.join(places) or '0'}}};",
        f"const int64_t meta_numbers[] = {{{', '.join(numbers) or '0'}}};",
    ]
    return "\n".join(lines) + "\n"


def _link(tools: Toolchain, folder: Path, text: str, codes: Sequence[bytes]) -> Path:
    (folder / "variants.c").write_text(text)
    files = [folder / f"kernels{i}.o" for i in range(len(codes))]
    for file, code in zip(files, codes, strict=True):
        file.write_bytes(code)
    objects = tools.compile([folder / "variants.c", *(RUNTIME / name for name in _SOURCES)], folder, (RUNTIME,))
    program = folder / "measure"
    inputs = [str(file) for file in (*objects, *files)]
    tools.run([tools.compiler, *tools.flags, "-static", *inputs, *tools.libraries, "-o", str(program)])
    return program
