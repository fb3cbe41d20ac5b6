"""Matrix products and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import position

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


@into(ROWS, "diagonal", "diagonal_copy")
def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    first, second = position(dim1, self.ndim), position(dim2, self.ndim)
    if first == second:
        raise ArgumentError("diagonal", f"dim1 and dim2 are {dim1} and {dim2}", "two axes")
    rest = [i for i in range(self.ndim) if i not in (first, second)]
    x = meta.transpose(self, (*rest, first, second))
    rows, columns = x.shape[-2:]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    flat = meta.reshape(x, (*x.shape[:-2], rows * columns))
    start = max(offset, 0) + max(-offset, 0) * columns
    if not count:
        return meta.strided_slice(flat, [0] * flat.ndim, [*flat.shape[:-1], 0])
    return flat[..., start : start + (count - 1) * (columns + 1) + 1 : columns + 1]


@into(ROWS)
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return diagonal(A, offset, dim1, dim2)
