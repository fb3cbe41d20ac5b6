"""Matrix products and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, direct, into

_PRODUCT = {"mat1": "x1", "mat2": "x2", "batch1": "x1", "batch2": "x2", "vec": "x2", "vec1": "x1", "vec2": "x2"}
_ADDED = {**_PRODUCT, "mat": "x1"}

ROWS: Rows = {
    "addbmm": direct("addbmm", **_ADDED), "addmm": direct("addmm", **_ADDED), "addmv": direct("addmv", **_ADDED),
    "addr": direct("addr", **_ADDED), "baddbmm": direct("baddbmm", **_ADDED), "bmm": direct("bmm", **_PRODUCT),
    "dot": direct("dot", tensor="x2"), "ger": direct("outer", **_PRODUCT), "inner": "inner", "kron": "kron",
    "linalg_matmul": "matmul", "linear": "dense", "matmul": "matmul", "mm": direct("mm", **_PRODUCT),
    "mv": direct("mv", **_PRODUCT), "outer": direct("outer", **_PRODUCT), "trace": "linalg.trace",
    "vdot": direct("dot", other="x2"),
}  # fmt: skip


@into(ROWS)
def tensordot(self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]) -> Any:
    return meta.tensordot(self, other, (dims_self, dims_other))  # type: ignore[arg-type]


@into(ROWS)
def einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> Any:
    return meta.einsum(equation, *tensors)


@into(ROWS)
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return meta.diagonal(A, offset, dim1, dim2)
