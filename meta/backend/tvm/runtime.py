"""TVM's runtime without its compiler, to allocate tensors and run compiled kernels.

`import tvm` takes seconds: it loads a library of 250 MB, Relax and, if installed, torch, which takes half of the time.
A process that compiles therefore imports it without torch. A process with all kernels in the cache needs only `tvm_ffi`
and one library of 3 MB, which load in a tenth of that time.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from meta.locks import new_lock
from meta.progress import deferred

_LIBRARY: Final = {"darwin": "libtvm_runtime.dylib", "win32": "tvm_runtime.dll"}.get(sys.platform, "libtvm_runtime.so")
_CPU: Final = 1  # DLPack's number
_THREAD_POOL: Final = {"TVM_THREAD_POOL_SPIN_COUNT": "300", "TVM_BIND_THREADS": "0"}
"""Threads of TVM's pool without work give way 300 times before they sleep, and run on any core. With TVM's own values,
300,000 times on a fixed core, they take the cores from torch's threads: ResNet-18's step with two threads took 1.1
times as long."""


importing = new_lock("modules of TVM")
"""Held while modules of TVM, and dialects with theirs, are imported. They import each other in circles, and torch: of
two threads, one would see half of a module."""


class _WithoutTorch(MetaPathFinder):
    """A finder that hides torch from the imports of the thread that makes it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is hidden while TVM is imported", name=fullname)
        return None


def _import_without_torch(name: str) -> Any:
    """A module, imported without torch unless that is loaded.

    `tvm_ffi` imports an installed torch because of a conflict on Windows, and for a fast path that torch includes since
    2.10. `tvm.relax` does for a conversion of tensors that it tries after two others. meta loads torch at its first
    use instead."""
    if sys.platform == "win32" or "torch" in sys.modules or name in sys.modules:
        return importlib.import_module(name)
    finder = _WithoutTorch()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)


def import_module(name: str) -> Any:
    """A module of TVM, imported by one thread at a time."""
    with importing, deferred():
        _import_without_torch(name.partition(".")[0])
        return importlib.import_module(name)


@cache
def ffi() -> Any:
    """The module `tvm_ffi`."""
    return import_module("tvm_ffi")


@cache
def complex_type(bits: int) -> Any:
    """DLPack's dtype of complex numbers of so many bits, which TVM passes on, but has no name for."""
    core = ffi().core
    return core._create_cdtype_from_tuple(core.DataType, 5, bits, 1)


def dtype_name(data: Any) -> str:
    """The name of a raw tensor's dtype; one that TVM has no name for as its error text."""
    try:
        return str(data.dtype)
    except ValueError as error:
        return str(error)


@cache
def load() -> Any:
    """The module `tvm_ffi` with the functions of TVM's runtime registered.

    Raises:
        ImportError: TVM is not installed.
    """
    with importing, deferred():
        for name, value in _THREAD_POOL.items():
            os.environ.setdefault(name, value)
        module = ffi()
        path = _library()
        if path is None or "tvm" in sys.modules:
            _import_without_torch("tvm")
        else:
            # RTLD_GLOBAL, as in `import tvm`: kernels look up the runtime's functions in the global scope.
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        # The first use of a kind of device holds a lock of the runtime, which a child forked just then never gets.
        module.get_global_func("runtime.GetDeviceAttr")(_CPU, 0, 0)
    return module


@cache
def load_cuda() -> bool:
    """Load TVM's CUDA runtime; returns whether its library and the driver exist."""
    load()
    if "tvm" in sys.modules:
        return True  # `import tvm` has loaded all its libraries
    path = _library()
    if path is None:
        return False
    try:
        ctypes.CDLL(str(path.with_name(path.name.replace("runtime", "runtime_cuda"))))
    except OSError:
        return False
    return True


def register_context_symbol(name: bytes, address: int) -> None:
    """Give the address of a function to modules that are loaded from now on and have a variable of this name for it."""
    register = ffi().LIB["TVMFFIEnvModRegisterContextSymbol"]  # a search for the library takes a millisecond
    register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    register(name, address)


def keep_loaded(module: Any) -> Any:
    """The module, whose code stays loaded until the process has ended: for code that is called as objects go."""
    ffi().get_global_func("ffi.ModuleGlobalsAdd")(module)
    return module


def _library() -> Path | None:
    """The path of TVM's runtime library; None if `import tvm` would search elsewhere."""
    if "TVM_LIBRARY_PATH" in os.environ or (spec := find_spec("tvm")) is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "lib" / _LIBRARY
    return path if path.is_file() else None
