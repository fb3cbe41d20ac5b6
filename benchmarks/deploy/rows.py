"""Networks on machines: how far their results are from this machine's, their sizes, and their memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.deploy.machines import (
    DRIVER,
    MACHINES,
    Machine,
    Written,
    build,
    decode,
    executor_of,
    expected,
    relative_error,
    run,
    write_program,
)
from benchmarks.deploy.networks import BATCHES, KINDS, NETWORKS
from meta.deploy.package import SOURCES
from meta.deploy.toolchain import FLAGS, RUNTIME

LIMITS: Final = {"inference": {1: 1e-6}, "step": {5: 1e-6, 50: 1e-4}}
"""Kind -> calls -> the largest relative error of results up to this call."""
RUNTIME_LIMIT: Final = 60_000
"""Bytes of the runtime's code and data on aarch64."""
TOTAL_LIMITS: Final = {"lenet": 150_000}
"""Network -> the same with its kernels and program."""


@dataclass(frozen=True)
class Row:
    """A program on a machine.

    errors: the largest relative error of the results up to a call, by the number of the call.
    arena, planned: bytes for intermediate values, in C and in the plan.  call: bytes of state, inputs, constants and
    results.  allocated: bytes that the program allocated, with tables.
    kernels, program, runtime: bytes of code and data."""

    machine: str
    network: str
    kind: str
    errors: dict[int, float]
    arena: int
    planned: int
    call: int
    allocated: int
    kernels: int
    program: int
    runtime: int

    @property
    def holds(self) -> bool:
        within = all(error <= LIMITS[self.kind].get(calls, np.inf) for calls, error in self.errors.items())
        total = self.kernels + self.program + self.runtime
        is_small = self.runtime <= RUNTIME_LIMIT and total <= TOTAL_LIMITS.get(self.network, np.inf)
        return within and (is_small or self.machine != "aarch64") and self.arena == self.planned

    def __str__(self) -> str:
        errors = ", ".join(f"{error:.1e} in {calls}" for calls, error in self.errors.items())
        memory = f"arena {self.arena:,} (plan {self.planned:,}), arguments {self.call:,}, allocated {self.allocated:,}"
        sizes = f"kernels {self.kernels:,}, program {self.program:,}, runtime {self.runtime:,} bytes"
        name = f"{self.machine:8} {self.network:13} {self.kind:10}"
        return f"{name} {errors:30} {memory}; {sizes}{'' if self.holds else '  MISSES'}"


def rows(
    machines: Iterable[str], networks: Iterable[str] = tuple(NETWORKS), kinds: Iterable[str] = KINDS, *,
    steps: int = BATCHES, seconds: float = 300,
) -> Iterator[Row]:  # fmt: skip
    """Run networks on machines, which have all that they need. steps: calls of training steps.
    seconds: a limit for a program. Raises RuntimeError for a program that fails."""
    networks, kinds = tuple(networks), tuple(kinds)
    wanted: dict[tuple[str, str], list[list[Any]]] = {}
    for name in machines:
        machine = MACHINES[name]
        pairs = [(n, kind) for n in networks if n in machine.networks for kind in kinds]
        with TemporaryDirectory(prefix="meta-") as folder:
            yield from _machine_rows(name, Path(folder), pairs, wanted, steps, seconds)


def _machine_rows(
    name: str, folder: Path, pairs: Sequence[tuple[str, str]], wanted: dict[tuple[str, str], Any], steps: int,
    seconds: float,
) -> Iterator[Row]:  # fmt: skip
    machine = MACHINES[name]
    written: dict[tuple[str, str], Written] = {}
    for network, kind in pairs:
        case = NETWORKS[network].case(kind, steps)
        executor = executor_of(case, machine.target, machine.cpu)
        written[network, kind] = write_program(folder, f"{network}_{kind}", executor, case.calls[0])
    binary = build(folder, machine, DRIVER, [f"{network}_{kind}" for network, kind in pairs])
    runtime = sum(_bytes(machine, [_object(folder, machine, RUNTIME / source)]) for source in SOURCES)
    for network, kind in pairs:
        case = NETWORKS[network].case(kind, steps)
        if (network, kind) not in wanted:
            wanted[network, kind] = expected(case, plain=True)
        results = wanted[network, kind]
        symbol = f"{network}_{kind}"
        data, allocated = run(machine, binary, symbol, case.calls, seconds=seconds)
        flat = iter(decode(data, [x for each in results for x in each]))
        errors = [max(relative_error(next(flat), x) for x in each) for each in results]
        code, plan = written[network, kind].text, written[network, kind]
        kernels = sorted(folder.glob(f"{symbol}_kernels*.o"))
        program = _object(folder, machine, folder / f"{symbol}.c")
        yield Row(
            name, network, kind, largest(errors, LIMITS[kind]), code.arena, plan.intermediates,
            plan.call, allocated, _bytes(machine, kernels), _bytes(machine, [program]), runtime,
        )  # fmt: skip


def largest(errors: Sequence[float], calls: Iterable[int]) -> dict[int, float]:
    """The largest error up to each number of calls; inference has one number, for all its calls."""
    return {n: max(errors[:n] if n > 1 else errors) for n in calls if n <= len(errors)}


def _object(folder: Path, machine: Machine, source: Path) -> Path:
    """A source as an object of the flags that users have."""
    output, tools = folder / f"size_{source.stem}.o", machine.tools
    command = [tools.compiler, *FLAGS, *tools.flags, f"-I{RUNTIME}", "-c", str(source), "-o", str(output)]
    subprocess.run(command, check=True)
    return output


def _bytes(machine: Machine, files: Sequence[Path]) -> int:
    """Bytes of code and data, without memory that starts as zeros."""
    printed = subprocess.run([machine.tools.size, *map(str, files)], capture_output=True, text=True, check=True).stdout
    return sum(sum(map(int, line.split()[:2])) for line in printed.splitlines()[1:])
