"""Compiled modules: compile, link, store on disk, load.

A module is stored as a shared library, which loads in 0.3 ms and needs a linker (`ld`, not a compiler). Without a
linker, it is stored as LLVM bitcode, from which loading generates code again (tens of milliseconds, without TE and the
passes); TVM has no loader for plain object files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm import runtime
from meta.backend.tvm import target as targets
from meta.cache import DiskCache, default_cache
from meta.errors import KernelError, MetaError, NotSupportedError
from meta.locks import new_lock
from meta.modes import modes, scoped
from meta.progress import deferred

_LIBRARY = ".so"
_BITCODE = ".ll"  # TVM selects the loader by suffix; this one reads text and bitcode
_FUNCTIONS: Final = ("bound", "launcher", *(("workspaces",) if sys.platform != "win32" else ()))  # see `functions`
_SPACE: Final = 64 << 20  # bytes; more than any module takes
_lock = new_lock("assembly")


@contextlib.contextmanager
def compiling(subject: str) -> Generator[None, None, None]:
    """Raise KernelError for what TVM raises inside the block. subject: the operators, or the part of the package."""
    longest = 500  # Characters of TVM's message: some hold a whole function.
    try:
        with deferred():
            yield
    except (MetaError, MemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        problem = f"TVM's compiler raised {type(error).__name__}: {lines[0]}"[:longest]
        remedy = "change the sizes or the dtype, or choose another dialect: meta.with_dialect(...)"
        raise KernelError(subject, problem, "a kernel that TVM compiles", remedy) from error


def compile_functions(functions: dict[str, Any], target: tvm.Target, *, checks: bool = False) -> Any:
    """Compile scheduled functions, given by symbol, to a runnable module. checks: see `lowering.pipeline`."""
    from meta.backend.tvm.lowering import needless_passes, options, pipeline  # modules from disk do without them

    module = tvm.IRModule({symbol: f.with_attr("global_symbol", symbol) for symbol, f in functions.items()})
    with target, options(disabled=needless_passes(functions.values(), target)):
        return tvm.build_tir(module, target, pipeline(checks=checks))


def _assemble(text: str) -> Any:
    cpu = tvm.Target({**cpus.host().llvm(), "opt-level": 0})
    code: str = tvm.get_global_func("target.build.llvm")(tvm.IRModule({}), cpu).inspect_source("ll")
    lines = [line for line in code.splitlines() if line.startswith("target ")]
    with private_folder() as folder:
        file = folder / ("module" + _BITCODE)
        file.write_text("\n".join([*lines, text]))
        return tvm.load_library(str(file), keep_module_alive=False)


def assembled(name: str, text: str) -> Any:
    """The module of functions in LLVM's assembly language, for this machine's CPU, from disk if it is there, and stored
    otherwise. name: the beginning of its key. text: without the target. Exported names start with `__tvm_ffi_`."""
    disk = default_cache()
    with scoped(cpu=None, tuning=None):
        key = f"{name}_{hashlib.sha256((text + targets.identity('cpu')).encode()).hexdigest()[:32]}"
        if disk is not None and (module := load(disk, key)) is not None:
            return module
        module = _assemble(text)
        return (disk and store(disk, key, module)) or module


def functions() -> Any:
    """The module of this package's functions in LLVM's assembly language, which stays loaded until the process has
    ended: one library, as each takes its time to link and to load. Windows lacks what workspaces.ll calls of C.
    Raises OSError if there is no space for it."""
    with _lock:
        return _functions()


@cache
def _functions() -> Any:
    lines = [line for name in _FUNCTIONS for line in Path(__file__).with_name(name + _BITCODE).read_text().split("\n")]
    declared = dict.fromkeys(line for line in lines if line.startswith("declare "))  # LLVM refuses a second declaration
    text = "\n".join([*declared, *(line for line in lines if line not in declared)])
    return runtime.keep_loaded(assembled("functions", text))


def store(cache: DiskCache, key: str, module: Any) -> Any | None:
    """Store `module` on disk; returns the module loaded from there, or None if it was not stored as a library."""
    try:
        with cache.workspace() as folder:
            linked = _link(module, folder)
            if linked is not None:
                return store_code(cache, key, linked)
            if not module.imports:
                cache.put(key, _bitcode(module, folder), _BITCODE)
    except OSError as error:
        cache.report(error)
    return None


def store_code(cache: DiskCache, key: str, code: bytes) -> Any | None:
    """Store a shared library; returns the module loaded from there, or None if it was not stored."""
    return _load_library(cache, key) if cache.put(key, code, _LIBRARY) else None


def load(cache: DiskCache, key: str) -> Any | None:
    """The module stored under `key`, or None; an entry that does not load is removed."""
    module = _load_library(cache, key)
    if module is not None:
        return module
    cache.remove(key, _LIBRARY)
    bitcode = cache.read(key, _BITCODE)
    if bitcode is None:
        return None
    try:
        with cache.workspace() as folder:
            file = folder / ("module" + _BITCODE)
            file.write_bytes(bitcode)
            return tvm.load_library(str(file), keep_module_alive=False)
    except OSError as error:
        cache.report(error)
        return None


def read(cache: DiskCache, key: str) -> bytes | None:
    """The bytes of the shared library stored under `key`, or None."""
    return cache.read(key, _LIBRARY)


def link(module: Any, objects: Sequence[bytes] = ()) -> bytes | None:
    """A module as the bytes of a shared library; None without a linker. Raises OSError if there is no space.

    objects: further files of machine code that become part of the library."""
    with private_folder() as folder:
        return _link(module, folder, objects)


def object_code(module: Any) -> bytes:
    """The machine code of a module for the CPU, without its imports. Raises OSError if there is no space."""
    with private_folder() as folder, _output_file(folder / "kernels.o") as file:
        module.write_to_file(str(file), "o")
        return file.read_bytes()


def import_codes(module: Any) -> list[tuple[str, bytes]]:
    """The kind and the code of each import of a module, such as ("cuda", ...).

    TVM packs them as a number of bytes, the import tree as two vectors, and the modules; all lengths have 64 bits."""
    data = tvm.pack_imports(module).numpy().tobytes()
    offset = 8

    def number() -> int:
        nonlocal offset
        offset += 8
        return int.from_bytes(data[offset - 8 : offset], "little")

    def text() -> bytes:
        nonlocal offset
        size = number()
        offset += size
        return data[offset - size : offset]

    for _ in range(2):
        size = number()
        offset += 8 * size
    codes: list[tuple[str, bytes]] = []
    while offset < len(data):
        kind = text().decode()
        if kind != "_lib":  # the machine code for the CPU, which is not among them
            codes.append((kind, text()))
    return codes


def load_bytes(data: bytes) -> Any:
    """The module of a shared library, which runs code as it loads.

    Raises:
        OSError: there is no space for the library.
        RuntimeError: it does not load.
    """
    runtime.load()
    with private_folder() as folder:
        file = folder / ("module" + _LIBRARY)
        file.write_bytes(data)
        return tvm.load_library(str(file), keep_module_alive=False)


@contextlib.contextmanager
def private_folder() -> Generator[Path, None, None]:
    """A private folder: in the cache, or in the temporary directory where the cache is off."""
    cache = default_cache()
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(cache.workspace()) if cache is not None else None
        except OSError:
            folder = None
        yield folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meta-")))


def _load_library(cache: DiskCache, key: str) -> Any | None:
    """The module of a library, or None if it does not load, for example from a file system mounted `noexec`."""
    with cache.library(key, _LIBRARY) as path:
        if path is None:
            return None
        runtime.load()
        try:
            return tvm.load_library(path, keep_module_alive=False)  # else it stays loaded for ever
        except (RuntimeError, OSError, ValueError):
            return None


def _link(module: Any, folder: Path, objects: Sequence[bytes] = ()) -> bytes | None:
    """A module as a shared library; None without a linker, or if linking fails.

    Raises:
        OSError: there is no space, or `folder` cannot be written to.
    """
    command = linker()
    if command is None:
        return None
    output = folder / ("module" + _LIBRARY)

    further = [folder / f"kernels{i}.o" for i in range(len(objects))]
    for file, code in zip(further, objects, strict=True):
        file.write_bytes(code)

    def link(name: str, files: list[str], **_: Any) -> None:
        files = [*files, *map(str, further)]
        subprocess.run([*command, "-o", name, *files], check=True, capture_output=True, pass_fds=descriptors)

    with _output_file(folder / "lib0.o") as host, _output_file(folder / "devc.o") as imports:
        descriptors = [int(file.readlink().name) for file in (host, imports) if file.is_symlink()]
        try:
            module.export_library(str(output), fcompile=link, workspace_dir=str(folder))
            return output.read_bytes()
        except (subprocess.CalledProcessError, FileNotFoundError):
            return None


def _bitcode(module: Any, folder: Path) -> bytes:
    with _output_file(folder / "module.bc") as file:
        module.write_to_file(str(file), "bc")
        return file.read_bytes()


@contextlib.contextmanager
def _output_file(path: Path) -> Generator[Path, None, None]:
    """A file that LLVM writes. LLVM ends the process if a write fails, so the file is in memory, behind a link at
    `path`. Systems without files in memory write to disk, if it has space.

    Raises:
        OSError: there is no space, or files may not have the size of a module (RLIMIT_FSIZE).
    """
    if _largest_file() < _SPACE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path.parent))
    if not hasattr(os, "memfd_create") or not Path("/proc/self/fd").is_dir():
        if shutil.disk_usage(path.parent).free < _SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path.parent))
        yield path
        return
    descriptor = os.memfd_create(path.name)
    try:
        path.symlink_to(f"/proc/self/fd/{descriptor}")
        yield path
    finally:
        os.close(descriptor)


def _largest_file() -> int:
    """The bytes that a file of this process may have."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def linker() -> tuple[str, ...] | None:
    """The command that links objects for the CPU compiled for to a shared library, without `-o` and files; None if the
    machine has no linker for it."""
    return _host_linker() if modes.cpu is None else _cross_linker(modes.cpu)


@cache
def _cross_linker(cpu: cpus.CpuTarget) -> tuple[str, ...] | None:
    if not cpu.toolchain:
        return None
    paths = (shutil.which(name) for name in (f"{cpu.toolchain}-ld", f"{cpu.toolchain}-gcc", "ld.lld"))
    command = next((path for path in paths if path), None)
    return (command, "-shared") if command else None


def missing_linker(subject: str, cpu: cpus.CpuTarget | None) -> NotSupportedError:
    """The error where there is no linker for a CPU, None for this machine's."""
    if cpu is not None and not cpu.toolchain:
        return NotSupportedError(subject, f"{cpu.triple} has no shared libraries", "a target with Linux")
    package = "" if cpu is None else f" (in Debian's package gcc-{cpu.toolchain.replace('_', '-')})"
    return NotSupportedError(
        subject, "the program cannot be linked", "a machine with a linker" if cpu is None else f"a linker for {cpu}",
        f"install one: ld{package}, ld.lld" + (", gcc or clang" if cpu is None else ""),
    )  # fmt: skip


@cache
def _host_linker() -> tuple[str, ...] | None:
    """The command that links objects for this machine.

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
