"""Binaries of programs as C: all programs of a machine are linked into one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import meta
from meta.deploy.emit import ProgramText, emit
from meta.deploy.objects import kernel_objects
from meta.deploy.toolchain import RUNTIME
from meta.files import safetensors
from tests.python.deploy.programs import CASES, Case

FLAGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1")
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@dataclass(frozen=True)
class Machine:
    """target: of `meta.vm.compile`.  compiler, emulator: commands.  flags: of the compiler.  needs: a folder of its
    libraries.  names: of the programs that it runs."""

    target: str | None
    compiler: str
    emulator: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    needs: str = "/"
    names: tuple[str, ...] = tuple(CASES)

    def require(self) -> None:
        """Skip the test on machines without the commands."""
        for command in (self.compiler, *self.emulator[:1]):
            if shutil.which(command) is None:
                pytest.skip(f"there is no {command} on this machine")
        if not Path(self.needs).is_dir():
            pytest.skip(f"there is no {self.needs} on this machine")


_FIVE: Final = ("mlp", "lenet", "lstm", "generator", "own_operator")
HOST: Final = Machine(None, "gcc", (), SANITIZERS)
MACHINES: Final = {
    "host": HOST,
    "aarch64": Machine(
        "aarch64-linux-gnu", "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    ),
    "riscv64": Machine(
        "riscv64-linux-gnu", "riscv64-linux-gnu-gcc", ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")
    ),
    "armv7": Machine(
        "armv7-linux-gnueabihf", "arm-linux-gnueabihf-gcc", ("qemu-arm", "-L", "/usr/arm-linux-gnueabihf"),
        names=_FIVE,
    ),
    "wasm32": Machine(
        "wasm32-wasi", "clang", ("node", "--no-warnings", str(Path(__file__).with_name("run_wasi.mjs"))),
        ("--target=wasm32-wasi", "--sysroot=/usr", "-msimd128", "-Wl,-z,stack-size=1048576"),
        "/usr/include/wasm32-wasi", _FIVE,
    ),
}  # fmt: skip


def executor_of(case: Case, target: str | None) -> Any:
    with meta.with_dialect("tvm"):
        return meta.vm.compile(case.what(), dynamic=case.dynamic, target=target)


def write_program(folder: Path, name: str, executor: Any, inputs: Sequence[Any], *, embed: bool = False) -> ProgramText:
    """Write the files of a program."""
    program = executor.program(*map(meta.array, inputs))
    objects = kernel_objects(program, fuse=executor.fuse, prefix=f"{name}_")
    text = emit(program, objects, name, embed=embed)
    (folder / f"{name}.c").write_text(text.code)
    (folder / f"{name}.h").write_text(text.header)
    for i, code in enumerate(objects.files):
        (folder / f"{name}_kernels{i}.o").write_bytes(code)
    arrays = [safetensors.array_entry(each.name, each.array) for each in text.parameters if each.array is not None]
    if arrays:
        safetensors.write(folder / f"{name}.safetensors", arrays, {})
    return text


def build(folder: Path, machine: Machine, main: Path, names: Sequence[str]) -> Path:
    """Link programs with a main function; the binary. Warnings are errors."""
    rows = "".join(f'{{"{name}", &{name}_code}}, ' for name in names)
    includes = "".join(f'#include "{name}.h"\n' for name in names)
    table = f"static const struct {{ const char *name; const meta_program_code *code; }} programs[] = {{{rows}}};\n"
    (folder / "programs.h").write_text(includes + table)
    sources = [main, *(folder / f"{name}.c" for name in names), *sorted(RUNTIME.glob("*.c"))]
    objects = [file for name in names for file in sorted(folder.glob(f"{name}_kernels*.o"))]
    output = folder / main.stem
    command = [machine.compiler, *FLAGS, *machine.flags, f"-I{RUNTIME}", f"-I{folder}", "-o", str(output)]
    completed = subprocess.run([*command, *map(str, (*sources, *objects)), "-lm"], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return output


def encode(arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    return b"".join(np.array([x.ndim, *x.shape], "int64").tobytes() + x.tobytes() for x in arrays)


def decode(data: bytes, like: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The tensors that the driver wrote, of the dtypes of `like`."""
    out: list[np.ndarray[Any, Any]] = []
    for x in like:
        ndim = int.from_bytes(data[:8], "little")
        shape = np.frombuffer(data[8 : 8 + 8 * ndim], "int64")
        end = 8 + 8 * ndim + int(np.prod(shape)) * x.itemsize
        out.append(np.frombuffer(data[8 + 8 * ndim : end], x.dtype).reshape(shape))
        data = data[end:]
    assert not data
    return out


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, (tuple, list)):
        return [x for each in value for x in leaves(each)]
    return [value.detach().numpy()]


def expected(case: Case) -> list[np.ndarray[Any, Any]]:
    """The results of the calls on this machine, by the executor."""
    executor = executor_of(case, None)
    return [x for call in case.calls for x in leaves(executor(*map(meta.array, call)))]
