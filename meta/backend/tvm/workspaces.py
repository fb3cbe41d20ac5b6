"""Memory of the buffers inside of kernels, such as padded operands.

TVM's kernels take it from a pool of their thread. The pool throws an exception of C++ where memory runs out, which ends
the process, because it cannot leave a kernel, and it keeps the largest buffers for ever. Kernels therefore call the
functions in workspaces.ll: if memory runs out, the call raises DeviceError, and buffers of 256 MiB and more go back to
the system. TVM's runtime gives a kernel the addresses of these functions when it loads the kernel.
"""

from __future__ import annotations

import sys

from meta.backend.tvm import library, runtime
from meta.errors import DeviceError
from meta.locks import new_lock

_lock = new_lock("launcher")


def prepare() -> None:
    """Let kernels that are loaded from now on take memory by these functions."""
    if sys.platform == "win32":
        return
    with _lock:
        module = library.functions()
        runtime.ffi().error.register_error("meta.MemoryRanOut", _MemoryRanOut)
        runtime.register_context_symbol(b"__TVMBackendAllocWorkspace", module["allocate"]())
        runtime.register_context_symbol(b"__TVMBackendFreeWorkspace", module["release"]())


class _MemoryRanOut:
    """What TVM's runtime calls with the text of an error by workspaces.ll, for the exception to raise. A class, as it
    takes no function."""

    def __new__(cls, problem: str) -> DeviceError:
        return DeviceError("memory", problem, "as much as the device has free", "free arrays or use smaller ones")
