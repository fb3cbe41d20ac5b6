"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, direct, into

ROWS: Rows = {
    "addbmm": direct("addbmm", batch1="x1", batch2="x2"), "addmm": direct("addmm", mat1="x1", mat2="x2"),
    "addmv": direct("addmv", mat="x1", vec="x2"), "addr": direct("addr", vec1="x1", vec2="x2"),
    "baddbmm": direct("baddbmm", batch1="x1", batch2="x2"), "bmm": direct("bmm", self="x1", mat2="x2"),
    "chain_matmul": direct("linalg.multi_dot", matrices="xs"),
    "dot": direct("dot", self="x1", tensor="x2"),
    "ger": direct("outer", self="x1", vec2="x2"), "inner": "inner", "kron": "kron",
    "linalg_cross": direct("cross", self="x1"),
    "linalg_diagonal": direct("linalg.diagonal", A="x", dim1="axis1", dim2="axis2"), "linalg_matmul": "matmul",
    "linalg_matrix_power": "linalg.matrix_power", "linalg_multi_dot": "linalg.multi_dot",
    "linalg_vander": direct("linalg.vander", N="n"), "linalg_vecdot": direct("linalg.vecdot", x="x1", y="x2"),
    "linear": "dense", "matmul": "matmul", "matrix_power": "linalg.matrix_power",
    "mm": direct("mm", self="x1", mat2="x2"), "mv": direct("mv", self="x1", vec="x2"),
    "outer": direct("outer", self="x1", vec2="x2"), "trace": "linalg.trace",
    "vdot": direct("dot", self="x1", other="x2"),
}  # fmt: skip


@into(ROWS)
def tensordot(self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> Any:
    return meta.tensordot(self, other, (dims_self, dims_other))


@into(ROWS)
def einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    return meta.einsum(equation, *tensors)


@into(ROWS)
def cross(self: Any, other: Any, dim: int | None = None) -> Any:
    """Without `dim` along the first axis of size 3."""
    axis = next((i for i, size in enumerate(self.shape) if size == 3), -1) if dim is None else dim
    return meta.cross(self, other, axis)
