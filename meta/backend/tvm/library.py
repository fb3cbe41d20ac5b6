"""Compiled modules: compile, link, keep on disk, load back.

A module is kept as a shared library, which loads in 0.3 ms. Making one takes a linker (`ld`, not a compiler). Where
there is none, the module is kept as LLVM bitcode and generated again when loaded (tens of milliseconds, still without
TE and the passes); TVM has no loader for plain object files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import runtime
from meta.cache import DiskCache

_LIBRARY = ".so"
_BITCODE = ".ll"  # TVM picks the loader by suffix and has one for text and bitcode alike


def compile_functions(functions: dict[str, Any], target: Any) -> Any:
    """Compile scheduled functions, by symbol, to a runnable module."""
    module = tvm.IRModule({symbol: f.with_attr("global_symbol", symbol) for symbol, f in functions.items()})
    return tvm.build_tir(module, target)


def store(cache: DiskCache, key: str, module: Any) -> Any | None:
    """Keep `module` on disk; the module as loaded back from there, or None when it could not be kept."""
    with tempfile.TemporaryDirectory(prefix="meta-") as folder:
        linked = _linked(module, Path(folder))
        if linked is not None:
            path = cache.put(key, linked.read_bytes(), _LIBRARY)
            return _load_library(path) if path is not None else None
        if not module.imports:
            bitcode = Path(folder) / "module.bc"
            module.write_to_file(str(bitcode), "bc")
            cache.put(key, bitcode.read_bytes(), _BITCODE)
    return None


def load(cache: DiskCache, key: str) -> Any | None:
    """The module kept under `key`, or None; an entry that does not load is removed."""
    path = cache.get(key, _LIBRARY)
    module = _load_library(path) if path is not None else None
    if module is not None:
        return module
    if path is not None:
        cache.remove(key, _LIBRARY)
    bitcode = cache.read(key, _BITCODE)
    if bitcode is None:
        return None
    with tempfile.TemporaryDirectory(prefix="meta-") as folder:
        file = Path(folder) / ("module" + _BITCODE)
        file.write_bytes(bitcode)
        return tvm.load_module(str(file))


def _load_library(path: Path) -> Any | None:
    """None where the library cannot be loaded, for instance from a file system mounted `noexec`."""
    runtime.load()
    try:
        return tvm.load_library(str(path))
    except (RuntimeError, OSError, ValueError):
        return None


def _linked(module: Any, folder: Path) -> Path | None:
    command = linker()
    if command is None:
        return None
    output = folder / ("module" + _LIBRARY)

    def link(name: str, objects: list[str], **_: Any) -> None:
        subprocess.run([*command, "-o", name, *objects], check=True, capture_output=True)

    try:
        module.export_library(str(output), fcompile=link, workspace_dir=str(folder))
    except (subprocess.CalledProcessError, OSError):
        return None
    return output


@cache
def linker() -> tuple[str, ...] | None:
    """The command that links objects to a shared library on this machine, less `-o` and files; None if there is none.

    `ld` itself is preferred to a compiler driver: it takes a third of the time and is all that is needed, because the
    few symbols that kernels import (TVM's runtime, libm) are found in the process.
    """
    if sys.platform.startswith("linux"):
        for name in ("ld", "ld.lld", "ld.gold"):
            if path := shutil.which(name):
                return (path, "-shared")
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (
                (path, "-dynamiclib", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else (path, "-shared")
            )
    return None
