"""Kernels that read and write memory at any address.

TVM assumes that every buffer starts on a 64-byte boundary and so emits aligned vector moves, which fault on memory that
does not: NumPy promises 16 bytes, a slice of an array no more than its element's size. Unaligned moves cost the same on
aligned data, so CPU kernels assume nothing more, and memory of other libraries is shared wherever it starts.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm


def any_alignment(func: Any) -> Any:
    """The same function, with buffers aligned to their elements only."""
    return tvm.structural_map(func, (tvm.BufferType, _of_element))


def _of_element(t: Any) -> Any:
    if t.storage_scope not in ("", "global"):
        return t
    alignment = tvm.dtype(str(t.dtype)).itemsize
    return tvm.buffer_type(t.storage_scope, t.dtype, t.shape, t.strides, t.elem_offset, alignment, t.offset_factor,
                           t.layout, t.allocated_addr, t.span)  # fmt: skip
