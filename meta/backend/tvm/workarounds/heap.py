"""The memory of TVM's analyses of sizes.

Each analysis takes a table of 18 MB and gives it back. glibc takes blocks of this size from the system, which clears
their pages, and keeps such memory only after it has freed a larger block: the first kernel of a process would wait for
5,000 pages more, which takes as long as all of its schedule.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Final

_BYTES: Final = 24 << 20
"""More than a table, and less than the 32 MiB up to which glibc learns from what is freed."""


@cache
def keep_tables() -> None:
    """Free a block of memory larger than a table, whose pages were not touched. No effect on other C libraries."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    libc.free(libc.malloc(_BYTES))
