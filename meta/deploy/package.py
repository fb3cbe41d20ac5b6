"""Programs as sources, archives and libraries: what `Executor.save` writes in the formats for C.

"c"        a folder with the program, its kernels, its weights, the runtime, an example and a Makefile
"archive"  a static library with its headers beside it
"library"  a shared library with its headers beside it
"web"      a folder with the program in WebAssembly, a module in JavaScript that runs it, its weights, and a page
The weights are in a file in the safetensors format beside each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from meta import __version__
from meta.backend.tvm.cpu import CpuTarget, host
from meta.deploy.browser import link_flags, page_files
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
    _check_format(format, programs[0].source.cpu or host())
    symbol = identifier(symbol or target.name.split(".")[0].removeprefix("lib"))
    objects = kernel_objects(programs[0], fuse=fuse, prefix=f"{symbol}_")
    text = emit(programs[0], objects, symbol, embed=embed)
    if format == "c":
        return _write_folder(target, _sources(symbol, objects, text), f"{symbol}.safetensors", text)
    data = _linked(symbol, objects, text, format)
    if format == "web":
        return _write_folder(target, page_files(symbol, str(objects.cpu), data, text), "program.safetensors", text)
    _write_weights(Path(f"{target}.safetensors"), text)
    _put(target.with_name(f"{symbol}.h"), text.header.encode())
    for header in HEADERS:
        _put(target.with_name(header), (RUNTIME / header).read_bytes())
    _put(target, data)
    return hashlib.sha256(data).hexdigest()


def _sources(name: str, objects: KernelObjects, text: ProgramText) -> dict[str, bytes]:
    return {
        f"{name}.c": text.code.encode(),
        f"{name}.h": text.header.encode(),
        **{f"{name}_kernels{i}.o": code for i, code in enumerate(objects.files)},
        **{f"runtime/{file}": (RUNTIME / file).read_bytes() for file in (*HEADERS, "meta_runtime.h", *SOURCES)},
        "main.c": example(name, text).encode(),
        "Makefile": makefile(name, toolchain(objects.cpu), len(objects.files)).encode(),
        f"{name}.pc": pkg_config(name, __version__).encode(),
    }


def _write_folder(folder: Path, files: Mapping[str, bytes], weights: str, text: ProgramText) -> str:
    """Write files by name, and the weights; returns a digest of the files."""
    try:
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder {folder} cannot be made: {error.strerror}"
        raise ArgumentError("save", problem, "the path of a folder") from error
    digest = hashlib.sha256()
    for file, data in files.items():
        _put(folder / file, data)
        digest.update(data)
    _write_weights(folder / weights, text)
    return digest.hexdigest()


def _check_format(format: str, cpu: CpuTarget) -> None:
    """Raise NotSupportedError for a format that a machine does not have."""
    is_web = cpu.architecture == "wasm32"
    if format == "library" and is_web:
        raise unsupported(f"{cpu.triple} has no shared libraries", 'format="web", "archive" or "c"')
    if format == "web" and not is_web:
        raise unsupported(
            f"the program is compiled for {cpu.triple}, which no browser runs", "a program for wasm32",
            'save it with target="wasm32"',
        )  # fmt: skip


def _linked(name: str, objects: KernelObjects, text: ProgramText, format: str) -> bytes:
    """A library, or a module, of the program, its kernels and the runtime."""
    tools = toolchain(objects.cpu)
    tools.check()
    with TemporaryDirectory(prefix="meta-") as temporary:
        folder = Path(temporary)
        (folder / f"{name}.c").write_text(text.code)
        kernels = [folder / f"{name}_kernels{i}.o" for i in range(len(objects.files))]
        for file, code in zip(kernels, objects.files, strict=True):
            file.write_bytes(code)
        sources = [folder / f"{name}.c", *(RUNTIME / source for source in SOURCES)]
        files, output = [*tools.compile(sources, folder, (RUNTIME,)), *kernels], folder / "output"
        if format == "archive":
            tools.run([tools.archiver, "rcsD", str(output), *map(str, files)])
        else:
            flags = link_flags(name) if format == "web" else ["-shared", "-Wl,-Bsymbolic"]
            tools.link(files, output, flags)
        return output.read_bytes()


def _write_weights(path: Path, text: ProgramText) -> None:
    arrays = [safetensors.array_entry(each.name, each.array) for each in text.weights if each.array is not None]
    if arrays:
        safetensors.write(path, arrays, {"format": "meta"})


def _put(path: Path, data: bytes) -> None:
    with atomic.replacing(path) as file:
        file.write(data)
