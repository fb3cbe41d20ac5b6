"""TVM's runtime without its compiler: enough to allocate tensors and to run kernels that are already compiled.

`import tvm` takes seconds: it loads a library of 250 MB, Relax and, where torch is installed, torch. A process that
finds its kernels in the cache needs `tvm_ffi` and one library of 3 MB, which load in a tenth of that.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_LIBRARY: Final = {"darwin": "libtvm_runtime.dylib", "win32": "tvm_runtime.dll"}.get(sys.platform, "libtvm_runtime.so")


@cache
def ffi() -> Any:
    """The module `tvm_ffi`, imported without torch.

    It imports torch whenever that is installed, for the sake of a conflict on Windows, and of a fast path for tensors
    that torch has built in since 2.10. Here torch is loaded when someone uses it.
    """
    if sys.platform == "win32" or "torch" in sys.modules or "tvm_ffi" in sys.modules:
        return importlib.import_module("tvm_ffi")
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes `import torch` raise ImportError, which is caught
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        if sys.modules.get("torch") is None:
            sys.modules.pop("torch", None)


@cache
def load() -> Any:
    """The module `tvm_ffi` with the functions of TVM's runtime registered.

    Raises:
        ImportError: TVM is not installed.
    """
    module = ffi()
    path = _library()
    if path is None or "tvm" in sys.modules:
        importlib.import_module("tvm")
    else:
        # As `import tvm` does: kernels look up what they call in the global scope.
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    return module


@cache
def load_cuda() -> bool:
    """Whether TVM's runtime has CUDA here: the library for it is there, and the driver that it needs."""
    load()
    if "tvm" in sys.modules:
        return True  # it has loaded what there is
    path = _library()
    if path is None:
        return False
    try:
        ctypes.CDLL(str(path.with_name(path.name.replace("runtime", "runtime_cuda"))))
    except OSError:
        return False
    return True


def _library() -> Path | None:
    """Where TVM's own loader would find its runtime library; None where that is not a matter of one file."""
    if "TVM_LIBRARY_PATH" in os.environ or (spec := find_spec("tvm")) is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "lib" / _LIBRARY
    return path if path.is_file() else None
