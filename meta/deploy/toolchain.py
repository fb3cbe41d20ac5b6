"""Compilers in C for the CPUs that programs are compiled for."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from meta.backend.tvm.cpu import CpuTarget, features_of
from meta.errors import KernelError, NotSupportedError
from meta.records import record

RUNTIME: Final = Path(__file__).with_name("runtime")
"""The folder of the runtime's sources and headers."""
FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra")


@record
class Toolchain:
    """compiler, archiver, size: commands.  package: Debian's name of what installs them.  flags: of the compiler.
    libraries: what programs are linked with."""

    compiler: str
    archiver: str
    size: str
    package: str
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ("-lm", "-pthread")

    def check(self) -> None:
        """Raise NotSupportedError, with the package to install, if a command is missing."""
        for command in (self.compiler, self.archiver):
            if shutil.which(command) is None:
                raise NotSupportedError(
                    "deploy", f"there is no {command} on this machine", "a compiler for the target",
                    f'install it (Debian: {self.package}), or write the sources: format="c"',
                )  # fmt: skip

    def compile(self, sources: Sequence[Path], folder: Path, includes: Sequence[Path]) -> list[Path]:
        """Compile sources to objects in `folder`. Raises KernelError with what the compiler printed."""
        objects: list[Path] = []
        for i, source in enumerate(sources):
            objects.append(folder / f"object{i}_{source.stem}.o")
            options = [*FLAGS, *self.flags, "-fPIC", *(f"-I{folder}" for folder in includes)]
            self.run([self.compiler, *options, "-c", str(source), "-o", str(objects[-1])])
        return objects

    def link(self, files: Sequence[Path], output: Path, flags: Sequence[str]) -> None:
        """Link objects. Raises KernelError with what the linker printed."""
        self.run([self.compiler, *self.flags, *flags, *map(str, files), *self.libraries, "-o", str(output)])

    def run(self, command: Sequence[str]) -> None:
        """Run a command. Raises NotSupportedError if it is missing, KernelError with what it printed if it fails."""
        self.check()
        completed = subprocess.run(command, capture_output=True, text=True)
        if completed.returncode:
            problem = f"{command[0]} failed: {completed.stderr.strip()[:1000]}"
            raise KernelError("deploy", problem, "a working compiler for the target", 'write the sources: format="c"')


def architecture() -> str:
    """This machine's, as triples have it."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def toolchain(cpu: CpuTarget) -> Toolchain:
    """The compiler for a CPU: this machine's, or Debian's cross compiler."""
    if cpu.architecture == "wasm32":
        simd = ("-msimd128",) if "simd128" in features_of(cpu) else ()
        flags = ("--target=wasm32-wasi", "--sysroot=/usr", *simd)  # the C library's, also for browsers
        return Toolchain(
            "clang", "llvm-ar", "llvm-size", "clang lld llvm wasi-libc libclang-rt-dev-wasm32", flags, ("-lm",)
        )
    if cpu.architecture == architecture():
        return Toolchain("cc", "ar", "size", "gcc binutils")
    prefix = cpu.toolchain
    return Toolchain(f"{prefix}-gcc", f"{prefix}-ar", f"{prefix}-size", f"gcc-{prefix.replace('_', '-')}")
