"""Launches of kernels whose grid may have no blocks.

TVM's runtime launches one block where a symbolic size is 0, which would read and write elements that do not exist; and
the code of a kernel takes the size of its grid for positive.
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx

LAUNCH: Final = "tirx.call_ffi_kernel"
"""TVM's operator for launches: of the name of a kernel, its arguments, and its grid and blocks."""


def without_empty_grids(func: tvm.PrimFunc) -> Any:
    """`func`, of the host, with each launch of a kernel under the condition that its grid has blocks."""
    return tvm.structural_map(func, (tirx.Evaluate, _under_condition))


def _under_condition(statement: tvm.Object) -> Any:
    call = statement.value
    if getattr(getattr(call, "op", None), "name", "") != LAUNCH:
        return statement
    dims = call.attrs["launch_params"]
    sizes = zip(dims, list(call.args)[-len(dims) :], strict=True)
    symbolic = [s for dim, s in sizes if str(dim).startswith("blockIdx") and not isinstance(s, tvm.IntImm)]
    has_blocks = [tirx.GT(size, tirx.const(0, str(size.ty.dtype))) for size in symbolic]
    return tirx.IfThenElse(tirx.all(*has_blocks), statement, None) if has_blocks else statement
