"""CPU kernels that accept tensors at any address.

TVM assumes that every buffer starts on a 64-byte boundary and emits aligned vector moves, which fault on other
addresses. NumPy guarantees 16 bytes, a slice of an array only the size of an element. Unaligned moves take equally long
on aligned data, so CPU kernels assume element alignment, and arrays of other libraries need no copy.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm


def relax_alignment(func: Any) -> Any:
    """`func` with its global buffers aligned to their elements only."""
    return tvm.structural_map(func, (tvm.BufferType, _align_to_element))


def _align_to_element(buffer_type: Any) -> Any:
    if buffer_type.storage_scope not in ("", "global"):
        return buffer_type
    alignment = tvm.dtype(str(buffer_type.dtype)).itemsize
    return tvm.buffer_type(
        buffer_type.storage_scope, buffer_type.dtype, buffer_type.shape, buffer_type.strides, buffer_type.elem_offset,
        alignment, buffer_type.offset_factor, buffer_type.layout, buffer_type.allocated_addr, buffer_type.span,
    )  # fmt: skip
