"""Compiled modules: compile, link, store on disk, load.

A module is stored as a shared library, which loads in 0.3 ms and needs a linker (`ld`, not a compiler). Without a
linker, it is stored as LLVM bitcode, from which loading generates code again (tens of milliseconds, without TE and the
passes); TVM has no loader for plain object files.
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
_BITCODE = ".ll"  # TVM selects the loader by suffix; this one reads text and bitcode


def compile_functions(functions: dict[str, Any], target: Any) -> Any:
    """Compile scheduled functions, given by symbol, to a runnable module."""
    module = tvm.IRModule({symbol: f.with_attr("global_symbol", symbol) for symbol, f in functions.items()})
    return tvm.build_tir(module, target)


def store(cache: DiskCache, key: str, module: Any) -> Any | None:
    """Store `module` on disk; returns the module loaded from there, or None if it was not stored as a library."""
    with tempfile.TemporaryDirectory(prefix="meta-") as folder:
        linked = _link(module, Path(folder))
        if linked is not None:
            path = cache.put(key, linked.read_bytes(), _LIBRARY)
            return _load_library(path) if path is not None else None
        if not module.imports:
            bitcode = Path(folder) / "module.bc"
            module.write_to_file(str(bitcode), "bc")
            cache.put(key, bitcode.read_bytes(), _BITCODE)
    return None


def load(cache: DiskCache, key: str) -> Any | None:
    """The module stored under `key`, or None; an entry that does not load is removed."""
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
    """The module of a library, or None if it does not load, for example from a file system mounted `noexec`."""
    runtime.load()
    try:
        return tvm.load_library(str(path))
    except (RuntimeError, OSError, ValueError):
        return None


def _link(module: Any, folder: Path) -> Path | None:
    """Link a module to a shared library in `folder`; None without a linker, or if linking fails."""
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
    """The command that links objects to a shared library, without `-o` and files; None if the machine has no linker.

    `ld` comes before compiler drivers: it takes a third of the time and suffices, because the process provides the few
    symbols that kernels import (TVM's runtime, libm).
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
