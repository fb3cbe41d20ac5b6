"""Sorts of rows by blocks of threads on a GPU."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Tensor
from meta.backend.tvm.te.merge_sort import MergeKernels
from meta.backend.tvm.te.radix_sort import RadixKernels
from meta.backend.tvm.te.sorting import Sort


def sort_rows(
    x: Tensor, axis: int, descending: bool, count: Any, *, values: bool = True, positions: bool = True
) -> Any:
    """The first `count` elements along an axis in sorted order, or their positions as int64, or both.

    axis: from the front.  count: at most the extent of the axis, which is below 2**32; None for all elements."""
    shape = (*x.shape[:axis], x.shape[axis] if count is None else count, *x.shape[axis + 1 :])
    sort = Sort.of(x, axis, descending, count)
    are_values = [True] * values + [False] * positions

    def body(ins: Any, outs: Any) -> Any:
        planes = [tirx.decl_buffer((size,), dtype, "kept") for size, dtype in sort.planes]
        buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs, *planes)]
        statements = [tirx.AllocBuffer(plane) for plane in planes]
        for kernels in (MergeKernels, RadixKernels):
            statements += kernels(sort, are_values, buffers).statements()
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    kinds = [sort.dtype if is_value else "int64" for is_value in are_values]
    return te.extern([shape] * len(kinds), [x], body, dtype=kinds, name="sorted")
