"""Machines that run programs as C: all programs of a machine are linked into one binary."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import meta
from benchmarks.deploy.networks import FIVE, NETWORKS, Case
from meta.backend.tvm.cpu import CpuTarget, parse_target
from meta.deploy.emit import ProgramText, emit
from meta.deploy.objects import kernel_objects
from meta.deploy.package import SOURCES
from meta.deploy.toolchain import RUNTIME, Toolchain, architecture, toolchain
from meta.files import safetensors

FLAGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1")
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FOLDER: Final = Path(__file__).parent
DRIVER: Final = FOLDER / "driver.c"
PLAIN: Final = f"{architecture()}-linux-gnu"
"""The triple of this machine, for a processor without special instructions."""
Arrays = Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Machine:
    """target, cpu: of `meta.vm.compile`.  emulator: a command, and a Debian package with it.  flags: of the compiler.
    networks: names of the networks that it runs.  headers: a folder of its C library."""

    target: str | CpuTarget | None
    emulator: tuple[str, ...] = ()
    package: str = ""
    cpu: str | None = None
    flags: tuple[str, ...] = ()
    networks: tuple[str, ...] = tuple(NETWORKS)
    headers: str = "/"

    @property
    def tools(self) -> Toolchain:
        return toolchain(parse_target(self.target or PLAIN))

    @property
    def missing(self) -> str:
        """What this system lacks, and the Debian packages with it; "" for nothing."""
        for command, package in (
            (self.tools.compiler, self.tools.package), (self.tools.size, self.tools.package),
            *((command, self.package) for command in self.emulator[:1]),
        ):  # fmt: skip
            if shutil.which(command) is None:
                return f"there is no {command} on this machine (Debian: {package})"
        return "" if Path(self.headers).is_dir() else f"there is no {self.headers} (Debian: {self.tools.package})"


def _qemu(target: str, cpu: str | None = None, **options: Any) -> Machine:
    name = parse_target(target).toolchain.partition("-")[0]
    folder = ("-L", f"/usr/{parse_target(target).toolchain}") if target != PLAIN else ()
    return Machine(target, (f"qemu-{name}", *folder, *options.pop("options", ())), "qemu-user", cpu, **options)


HOST: Final = Machine(None, flags=SANITIZERS)
MACHINES: Final = {
    "aarch64": _qemu("aarch64-linux-gnu", "cortex-a72"),
    "riscv64": _qemu("riscv64-linux-gnu"),
    "armv7": _qemu("armv7-linux-gnueabihf", networks=FIVE),
    "x86-64": _qemu("x86_64-linux-gnu", options=("-cpu", "qemu64"), networks=FIVE),
    "wasm32": Machine(
        "wasm32-wasi", ("node", "--no-warnings", str(FOLDER / "run_wasi.mjs")), "nodejs", networks=FIVE,
        headers="/usr/include/wasm32-wasi",
    ),
}  # fmt: skip


def executor_of(case: Case, target: str | CpuTarget | None, cpu: str | None = None) -> Any:
    with meta.with_dialect("tvm"):
        return meta.vm.compile(case.what(), dynamic=case.dynamic, target=target, cpu=cpu)


@dataclass(frozen=True)
class Written:
    """text: the program.  intermediates: bytes that the plan of its kernel calls has for what is computed on the way.
    call: bytes of state, inputs, constants and results, of its types."""

    text: ProgramText
    intermediates: int
    call: int


def write_program(folder: Path, name: str, executor: Any, inputs: Arrays, *, embed: bool = False) -> Written:
    """Write the files of a program."""
    arrays = [meta.array(x) for x in inputs]
    program = executor.program(*arrays)
    objects = kernel_objects(program, fuse=executor.fuse, prefix=f"{name}_")
    text = emit(program, objects, name, embed=embed)
    (folder / f"{name}.c").write_text(text.code)
    (folder / f"{name}.h").write_text(text.header)
    for i, code in enumerate(objects.files):
        (folder / f"{name}_kernels{i}.o").write_bytes(code)
    arrays = [safetensors.array_entry(each.name, each.array) for each in text.parameters if each.array is not None]
    if arrays:
        safetensors.write(folder / f"{name}.safetensors", arrays, {})
    planned = objects.planned.memory
    report = executor.memory(*map(meta.array, inputs))
    return Written(text, planned.intermediates, report.state + report.inputs + report.constants + planned.outputs)


def build(folder: Path, machine: Machine, main: Path, names: Sequence[str]) -> Path:
    """Link programs with a main function; the binary. Warnings are errors. Raises CalledProcessError."""
    rows = "".join(f'{{"{name}", &{name}_code}}, ' for name in names)
    includes = "".join(f'#include "{name}.h"\n' for name in names)
    table = f"static const struct {{ const char *name; const meta_program_code *code; }} programs[] = {{{rows}}};\n"
    (folder / "programs.h").write_text(includes + table)
    sources = [main, *(folder / f"{name}.c" for name in names), *(RUNTIME / source for source in SOURCES)]
    objects = [file for name in names for file in sorted(folder.glob(f"{name}_kernels*.o"))]
    output, tools = folder / main.stem, machine.tools
    options = [*FLAGS, *tools.flags, *machine.flags, f"-I{RUNTIME}", f"-I{folder}", "-o", str(output)]
    subprocess.run([tools.compiler, *options, *map(str, (*sources, *objects)), *tools.libraries], check=True)
    return output


def run(
    machine: Machine, binary: Path, name: str, calls: Sequence[Arrays], *, threads: int = 1, seconds: float = 300,
    trained: str = "",
) -> tuple[bytes, int]:  # fmt: skip
    """What a program of a binary writes for its calls, and the bytes that it allocated.

    trained: a file in the folder that it continues from and writes.  Raises RuntimeError with what it printed."""
    inputs, results = binary.with_name(f"{name}.inputs"), binary.with_name(f"{name}.results")
    inputs.write_bytes(b"".join(encode(call) for call in calls))
    command = [*machine.emulator, str(binary), str(binary.parent), name, str(threads), str(len(calls))]
    command += [str(binary.with_name(trained))] if trained else []
    with inputs.open("rb") as source, results.open("wb") as target:  # WASI reads pipes in part
        done = subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=seconds)
    message = done.stderr.decode()
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {message[:1000]}")
    return results.read_bytes(), int(re.findall(r"memory (\d+)", message)[-1])


def encode(arrays: Arrays) -> bytes:
    return b"".join(np.array([x.ndim, *x.shape], "int64").tobytes() + x.tobytes() for x in arrays)


def decode(data: bytes, like: Arrays) -> list[np.ndarray[Any, Any]]:
    """The tensors that the driver wrote, of the dtypes of `like`."""
    out: list[np.ndarray[Any, Any]] = []
    for x in like:
        ndim = int.from_bytes(data[:8], "little")
        shape = np.frombuffer(data[8 : 8 + 8 * ndim], "int64")
        end = 8 + 8 * ndim + int(np.prod(shape)) * x.itemsize
        out.append(np.frombuffer(data[8 + 8 * ndim : end], x.dtype).reshape(shape))
        data = data[end:]
    if data:
        raise RuntimeError(f"{len(data)} bytes are left")
    return out


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, (tuple, list)):
        return [x for each in value for x in leaves(each)]
    return [value.detach().numpy()]


def expected(case: Case, *, plain: bool) -> list[list[np.ndarray[Any, Any]]]:
    """The results of each call on this machine, by the executor. plain: compiled for a processor without special
    instructions."""
    executor = executor_of(case, PLAIN if plain else None)
    return [leaves(executor(*map(meta.array, call))) for call in case.calls]


def relative_error(actual: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The largest difference, relative to the largest element; infinite for other numbers than floats that differ."""
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, wanted) else np.inf
    difference = np.abs(actual.astype("float64") - wanted.astype("float64"))
    error = float(difference.max(initial=0) / max(float(np.abs(wanted.astype("float64")).max(initial=0)), 1e-30))
    return error if np.isfinite(error) else np.inf
