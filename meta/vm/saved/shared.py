"""A program as a shared library, which C and C++ call through `meta_program.h` beside this file, without Python.

The library needs only TVM's runtime, so that all kernels have to be TVM's. Its function "main" takes DLPack tensors:
the inputs, the state, an int64[2] random key (seed, offset) for each generator, and constants. It returns new tensors
for its results and writes to the state that it updates. `PATH.safetensors`, which is written too, has the arrays of the
state and the constants, by name, and under "meta.program" the list of arguments and results as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError
from meta.files import safetensors
from meta.files.atomic import Path, replacing
from meta.files.program_file import PROGRAM
from meta.ir.type import TensorType
from meta.vm.build.executables import load, shared_library
from meta.vm.lower.choose import output_types
from meta.vm.program import Program


def write(path: Path, name: str, programs: Sequence[Program], *, fuse: bool) -> str:
    """Write the library and the file beside it; returns the SHA-256 of the library, in hex."""
    if len(programs) != 1:
        raise ArgumentError(
            "save", f"{name} is compiled for {len(programs)} combinations of arguments", "one for a library",
            "compile it anew and call executor.program(...) once",
        )  # fmt: skip
    (program,) = programs
    source = program.source
    _check_kernels(program)
    code = shared_library(source, load(source, fuse=fuse), fuse=fuse)
    arrays = [safetensors.array_entry(name, x) for _, name, x in _arguments(program) if x is not None]
    metadata = {"format": "meta", PROGRAM: json.dumps(describe(program))}
    safetensors.write(f"{os.fspath(path)}.safetensors", arrays, metadata)
    with replacing(path) as file:
        file.write(code)
    return hashlib.sha256(code).hexdigest()


def describe(program: Program) -> dict[str, Any]:
    """The arguments and the results of "main", in order, as JSON."""
    source = program.source
    updated = set(source.mutates.values())
    described = [
        {"name": name, "role": role, **_type(p.type), "updated": i in updated}
        for i, ((role, name, _), p) in enumerate(zip(_arguments(program), source.main.params, strict=True))
    ]
    return {
        "device": str(source.device),
        "arguments": described,
        "results": [_type(t) for t in output_types(source)],
    }


def _arguments(program: Program) -> list[tuple[str, str, NDArray | None]]:
    """(role, name, array that the program has) of each argument."""
    record = program.record
    return [
        *(("input", name, None) for name in record.inputs),
        *(("state", name, x) for name, x in record.state),
        *(("random", f"key.{i}", None) for i in range(len(record.random))),
        *(("constant", f"constant.{i}", x) for i, x in enumerate(program.constants)),
    ]


def _type(kind: Any) -> dict[str, Any]:
    assert isinstance(kind, TensorType)
    return {"dtype": kind.dtype, "shape": [d if isinstance(d, int) else str(d) for d in kind.shape]}


def _check_kernels(program: Program) -> None:
    """Raise NotSupportedError for a program that needs more than TVM's runtime."""
    called = sorted({choice.implementation.name for choice in program.source.choices.packed().values()})
    if called:
        raise NotSupportedError(
            "save", f"the program calls {', '.join(called[:5])}", "only kernels of TVM in a library",
            'compile it inside meta.with_dialect("tvm"), or save it as a program',
        )  # fmt: skip
    if program.source.calls_python:
        raise NotSupportedError(
            "save", "the program has loops, recursion or results of unknown size, for which it calls Python",
            "programs without them in a library", "save it as a program",
        )  # fmt: skip
