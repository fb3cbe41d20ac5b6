"""A program as a shared library, which C and C++ call through `meta_program.h` in the folder of `meta.vm.saved`,
without Python.

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

from meta.deploy.description import arguments, check_kernels, describe, only_program
from meta.errors import NotSupportedError
from meta.files import safetensors
from meta.files.atomic import Path, replacing
from meta.files.program_file import PROGRAM
from meta.vm.build.executables import load, shared_library
from meta.vm.program import Program


def write(path: Path, name: str, programs: Sequence[Program], *, fuse: bool) -> str:
    """Write the library and the file beside it; returns the SHA-256 of the library, in hex."""
    program = only_program(name, programs)
    source = program.source
    check_kernels(source)
    if source.calls_python:
        raise NotSupportedError(
            "save", "the program has loops, recursion or results of unknown size, for which it calls Python",
            "programs without them in a library", "save it as a program",
        )  # fmt: skip
    code = shared_library(source, load(source, fuse=fuse), fuse=fuse)
    arrays = [safetensors.array_entry(name, x) for _, name, x in arguments(program) if x is not None]
    metadata = {"format": "meta", PROGRAM: json.dumps(describe(program))}
    safetensors.write(f"{os.fspath(path)}.safetensors", arrays, metadata)
    with replacing(path) as file:
        file.write(code)
    return hashlib.sha256(code).hexdigest()
