"""Memory of TVM's analyses, which the process keeps between them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_CODE = """
import ctypes
from meta.backend.tvm.workarounds import heap

class Counts(ctypes.Structure):
    _fields_ = [(f"n{i}", ctypes.c_int) for i in range(10)]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
libc.mallinfo.restype = Counts

def blocks_of_the_system():
    before = libc.mallinfo().n3
    assert libc.malloc(18 << 20)
    return libc.mallinfo().n3 - before

print(blocks_of_the_system())
heap.keep_tables()
print(blocks_of_the_system())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc's rule for freed memory"
)
def test_tables_of_analyses_are_kept() -> None:
    """The heap has the next table, and gives it out again."""
    completed = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["1", "0"]
