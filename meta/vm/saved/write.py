"""Programs to files."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from platform import machine
from typing import Any, Final

from meta import __version__
from meta.backend.tvm import target as targets
from meta.device import Device
from meta.errors import ArgumentError, NotSupportedError
from meta.files import program_file, safetensors
from meta.files.atomic import Path, check_path
from meta.files.program_file import PROGRAM
from meta.tree import Tree
from meta.vm.build.executables import shared_library
from meta.vm.program import Program
from meta.vm.saved import shared
from meta.vm.saved.convention import Tables, encode

FORMAT: Final = 2
"""The version of the files. It counts up with every change of the files, and of the functions in Python that programs
call (`meta.vm.lower.calls`)."""
_FORMATS: Final = ("program", "library")


def write(
    path: Path, name: str, programs: Sequence[tuple[Tree, Program]], device: Device, *, fuse: bool, whole: bool,
    format: str,
) -> str:  # fmt: skip
    """See `Executor.save`. programs: each with the nest of its arguments.  whole: compiled from an IR Module."""
    check_path("save", path)
    if format not in _FORMATS:
        raise ArgumentError("save", f"the format is {format!r:.80}", " or ".join(map(repr, _FORMATS)))
    if not programs:
        raise ArgumentError(
            "save", f"{name} has not been compiled", "a program that is compiled",
            "call it first, or executor.program(...) with arguments of the types that calls will have",
        )  # fmt: skip
    if any(program.traced is not None and program.traced.before for _, program in programs):
        problem = f"calls of {name} evaluate Python functions, such as a LambdaLR, on the host"
        remedy = "save a step without the schedule, or write the rate with operators in a subclass of Schedule"
        raise NotSupportedError("save", problem, "programs that need no Python", remedy)
    if format == "library":
        return shared.write(path, name, [program for _, program in programs], fuse=fuse)
    tables = Tables()
    entries: list[safetensors.ArrayEntry] = []
    libraries: dict[str, int] = {}
    described: list[dict[str, Any]] = []
    for number, (arguments, program) in enumerate(programs):
        facts = encode(arguments, program, tables)
        key = program.loaded.key
        if key not in libraries:
            libraries[key] = len(libraries)
            code = shared_library(program.source, program.loaded, fuse=fuse)
            entries.append(_bytes_entry(f"library.{libraries[key]}", code))
        entries += [safetensors.array_entry(f"constant.{number}.{i}", x) for i, x in enumerate(program.constants)]
        described.append({**facts, "library": libraries[key], "constants": len(program.constants)})
    entries += [safetensors.array_entry(f"state.{n}", x) for n, x in tables.state.items()]
    header = {
        "name": name,
        "format": FORMAT,
        "meta": __version__,
        "tvm": targets.tvm_version(),
        "platform": f"{sys.platform} {machine()}",
        "device": str(device),
        "processor": processor(),
        "target": str(targets.target(device.kind)),
        "features": sorted(targets.instruction_sets(targets.target("cpu"))),
        "whole": whole,
        "generators": [generator.state for generator in tables.generators],
        "programs": described,
    }
    return program_file.write(path, entries, {PROGRAM: json.dumps(header)})


def processor() -> str:
    """A digest of what identifies the instruction set of this CPU."""
    return hashlib.sha256(targets.describe_processor().encode()).hexdigest()


def _bytes_entry(name: str, data: bytes) -> safetensors.ArrayEntry:
    import numpy as np

    return safetensors.ArrayEntry(name, "uint8", lambda: np.frombuffer(data, np.uint8))
