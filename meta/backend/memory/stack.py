"""How much of the C stack of this thread is left."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from functools import cache
from typing import Any

# Where glibc's ucontext_t holds the stack pointer.
_OFFSETS = {"x86_64": 160, "aarch64": 432}


@cache
def _libc() -> Any:
    """The C library; None on systems where the stack pointer is not found, which are those without glibc."""
    if sys.platform != "linux" or platform.machine() not in _OFFSETS or platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_ulong
    libc.pthread_getattr_np.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
    libc.pthread_attr_getstack.argtypes = (ctypes.c_void_p,) * 3
    libc.pthread_attr_destroy.argtypes = (ctypes.c_void_p,)
    libc.getcontext.argtypes = (ctypes.c_void_p,)
    return libc


class _ThreadStack(threading.local):
    """This thread. low: the lowest address of its stack, 0 if unknown.  size: in bytes.  context: memory for
    `getcontext`.

    glibc reads the map of the process's memory for it, which takes 2 ms beside torch."""

    def __init__(self) -> None:
        self.low = self.size = 0
        self.context = ctypes.create_string_buffer(4096)
        libc, attributes = _libc(), ctypes.create_string_buffer(256)
        if libc is None or libc.pthread_getattr_np(libc.pthread_self(), attributes):
            return
        low, size = ctypes.c_void_p(), ctypes.c_size_t()
        if not libc.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size)):
            self.low, self.size = low.value or 0, size.value
        libc.pthread_attr_destroy(attributes)


_stacks = cache(_ThreadStack)


def size() -> int:
    """Bytes of this thread's stack; 0 where the system does not tell."""
    return _stacks().size


def left() -> int | None:
    """Bytes of this thread's stack that are left; None where the system does not tell (without glibc)."""
    thread, libc = _stacks(), _libc()
    if not thread.low or libc.getcontext(thread.context):
        return None
    offset = _OFFSETS[platform.machine()]
    return int.from_bytes(thread.context[offset : offset + 8], "little") - thread.low
