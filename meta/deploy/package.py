"""Programs as sources, archives and libraries: what `Executor.save` writes in the formats for C.

"c"        a folder with the program, its kernels, its weights, the runtime, an example and a Makefile
"archive"  a static library with its headers beside it
"library"  a shared library with its headers beside it
The weights are in a file in the safetensors format beside each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from meta import __version__
from meta.deploy.emit import ProgramText, emit, identifier
from meta.deploy.objects import KernelObjects, kernel_objects
from meta.deploy.tables import unsupported
from meta.deploy.templates import example, makefile, pkg_config
from meta.deploy.toolchain import RUNTIME, toolchain
from meta.errors import ArgumentError
from meta.files import atomic, safetensors
from meta.vm.program import Program

HEADERS: Final = ("meta_program.h", "meta_program.hpp")
"""The headers that callers include, besides the program's."""
SOURCES: Final = ("program.c", "threads.c", "weights.c")


def write(
    path: atomic.Path, name: str, programs: Sequence[Program], *, fuse: bool, format: str, symbol: str = "",
    embed: bool = False,
) -> str:  # fmt: skip
    """Write a program in a format; returns the SHA-256 of what was written, without weights, in hex.

    name: of the executor, for errors.  symbol: what the program is called in C, by default as the file.
    embed: put the weights into the code.

    Raises ArgumentError for an executor with several programs, NotSupportedError for what C cannot call and without a
    compiler, FileError for files that cannot be written."""
    if len(programs) != 1:
        raise ArgumentError(
            "save", f"{name} is compiled for {len(programs)} combinations of arguments", "one for a library",
            "compile it anew and call executor.program(...) once",
        )  # fmt: skip
    target = Path(os.fspath(path))
    symbol = identifier(symbol or target.name.split(".")[0].removeprefix("lib"))
    objects = kernel_objects(programs[0], fuse=fuse, prefix=f"{symbol}_")
    text = emit(programs[0], objects, symbol, embed=embed)
    if format == "c":
        return _write_folder(target, symbol, objects, text)
    data = _linked(symbol, objects, text, shared=format == "library")
    _write_weights(Path(f"{target}.safetensors"), text)
    _put(target.with_name(f"{symbol}.h"), text.header.encode())
    for header in HEADERS:
        _put(target.with_name(header), (RUNTIME / header).read_bytes())
    _put(target, data)
    return hashlib.sha256(data).hexdigest()


def _write_folder(folder: Path, name: str, objects: KernelObjects, text: ProgramText) -> str:
    files = {
        f"{name}.c": text.code.encode(),
        f"{name}.h": text.header.encode(),
        **{f"{name}_kernels{i}.o": code for i, code in enumerate(objects.files)},
        **{f"runtime/{file}": (RUNTIME / file).read_bytes() for file in (*HEADERS, "meta_runtime.h", *SOURCES)},
        "main.c": example(name, text).encode(),
        "Makefile": makefile(name, toolchain(objects.cpu), len(objects.files)).encode(),
        f"{name}.pc": pkg_config(name, __version__).encode(),
    }
    try:
        (folder / "runtime").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder {folder} cannot be made: {error.strerror}"
        raise ArgumentError("save", problem, "the path of a folder") from error
    digest = hashlib.sha256()
    for file, data in files.items():
        _put(folder / file, data)
        digest.update(data)
    _write_weights(folder / f"{name}.safetensors", text)
    return digest.hexdigest()


def _linked(name: str, objects: KernelObjects, text: ProgramText, *, shared: bool) -> bytes:
    """A library of the program, its kernels and the runtime."""
    if shared and objects.cpu.architecture == "wasm32":
        raise unsupported(f"{objects.cpu.triple} has no shared libraries", 'format="archive" or "c"')
    tools = toolchain(objects.cpu)
    tools.check()
    with TemporaryDirectory(prefix="meta-") as temporary:
        folder = Path(temporary)
        (folder / f"{name}.c").write_text(text.code)
        kernels = [folder / f"{name}_kernels{i}.o" for i in range(len(objects.files))]
        for file, code in zip(kernels, objects.files, strict=True):
            file.write_bytes(code)
        sources = [folder / f"{name}.c", *(RUNTIME / source for source in SOURCES)]
        files = [str(file) for file in (*tools.compile(sources, folder, (RUNTIME,)), *kernels)]
        output = str(folder / "output")
        if shared:
            flags = [*tools.flags, "-shared", "-Wl,-Bsymbolic"]
            tools.run([tools.compiler, *flags, *files, *tools.libraries, "-o", output])
        else:
            tools.run([tools.archiver, "rcsD", output, *files])
        return Path(output).read_bytes()


def _write_weights(path: Path, text: ProgramText) -> None:
    arrays = [safetensors.array_entry(each.name, each.array) for each in text.parameters if each.array is not None]
    if arrays and not text.embeds:
        safetensors.write(path, arrays, {"format": "meta"})


def _put(path: Path, data: bytes) -> None:
    with atomic.replacing(path) as file:
        file.write(data)
