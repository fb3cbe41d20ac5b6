"""`python -m tests.python.op.guarded`: sample rows on operands with unreadable memory before and after them.

A kernel that reads outside its operands ends the process. Each row's name is printed before it runs.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np

import meta
from meta.errors import MetaError
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T
from tests.python.op.samples import samples

WINDOWED = ("pool", "conv", "pad", "resize", "slice", "unfold", "grid", "roi")
"""Substrings of the names of operators that read neighbours of a position, and so might read past the edge."""
LARGER = (((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1)), ((5, 4), (1, 3), (2, 1)), ((2, 2), (2, 2), (0, 0)),
          ((3, 2), (2, 3), (0, 0)), ((9, 9), (3, 4), (4, 0)))  # fmt: skip
"""Kernels, strides and paddings."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guard(x: Any, at_end: bool) -> meta.NDArray:
    """A copy of x between unreadable pages: at the start of the readable memory, or at its end, aligned to 64 bytes."""
    x = np.asarray(x)
    if not x.size:
        return meta.asarray(x)
    page = mmap.PAGESIZE
    body = -(-x.nbytes // page) * page
    start = _LIBC.mmap(None, body + 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANON, -1, 0)
    _LIBC.mprotect(start, page, 0)
    _LIBC.mprotect(start + page + body, page, 0)
    offset = (body - x.nbytes) // 64 * 64 if at_end else 0
    memory = (ctypes.c_char * x.nbytes).from_address(start + page + offset)
    copy = np.frombuffer(memory, x.dtype).reshape(x.shape)
    copy[...] = x
    return meta.asarray(copy)


def accept_any_result(call: Any, result: Any) -> None:
    """A check that passes: the test is that the process survives."""


def larger_rows() -> list[Sample]:
    """Rows with planes large enough for vectors, with and without padding."""
    x, windows = T(2, 3, 16, 16), list[Sample]()
    for kernel, stride, padding in LARGER:
        sizes = (16 + 2 * padding[0] - kernel[0], 16 + 2 * padding[1] - kernel[1])
        dy = T(2, 3, sizes[0] // stride[0] + 1, sizes[1] // stride[1] + 1)
        for name in ("max_pool2d", "max_pool2d_with_indices", "avg_pool2d"):
            windows.append(Sample(name, x, kernel, stride, padding, check=accept_any_result))
        windows.append(Sample("avg_pool2d_dx", dy, x.shape, kernel, stride, padding, check=accept_any_result))
        anywhere = T(*dy.shape, dtype="int32", low=-512, high=512)
        windows.append(Sample("max_pool2d_dx", dy, anywhere, x.shape, kernel, stride, padding, check=accept_any_result))
    windows.append(Sample("adaptive_avg_pool2d", x, (7, 5), check=accept_any_result))
    windows.append(Sample("adaptive_max_pool2d_with_indices", x, (7, 5), check=accept_any_result))
    return windows


def rows() -> list[Sample]:
    """The sample rows of operators on windows, and larger rows."""
    return [*(row for row in samples() if any(part in row.op for part in WINDOWED)), *larger_rows()]


def print_now(line: str) -> None:
    """Print at once: the process may end in the next call."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the rows on the tvm dialect, except those it refuses."""
    for row in rows():
        for at_end in (False, True):
            print_now(f"{row!r} {'at the end' if at_end else 'at the start'}")
            call = make_call(row, row.run_dtypes(())[0])
            try:
                with meta.with_dialect("tvm"):
                    call.map(lambda x, at_end=at_end: guard(x, at_end)).run()
            except MetaError:
                continue
            print_now("ran")
    print_now("done")


if __name__ == "__main__":
    main()
