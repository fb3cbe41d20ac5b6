"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.dtype import is_inexact
from meta.frontend.torch.aten._row import Rows, direct, into

ROWS: Rows = {
    "addmm": direct("addmm", mat1="x1", mat2="x2"), "addr": direct("addr", vec1="x1", vec2="x2"),
    "bmm": direct("bmm", self="x1", mat2="x2"),
    "chain_matmul": direct("linalg.multi_dot", matrices="xs"),
    "dot": direct("dot", self="x1", tensor="x2"),
    "ger": direct("outer", self="x1", vec2="x2"), "inner": "inner", "kron": "kron",
    "linalg_cross": direct("cross", self="x1"),
    "linalg_diagonal": direct("linalg.diagonal", A="x", dim1="axis1", dim2="axis2"), "linalg_matmul": "matmul",
    "linalg_matrix_power": "linalg.matrix_power", "linalg_multi_dot": "linalg.multi_dot",
    "linalg_vander": direct("linalg.vander", N="n"), "linalg_vecdot": direct("linalg.vecdot", x="x1", y="x2"),
    "matmul": "matmul", "matrix_power": "linalg.matrix_power",
    "mm": direct("mm", self="x1", mat2="x2"), "mv": direct("mv", self="x1", vec="x2"),
    "outer": direct("outer", self="x1", vec2="x2"), "trace": "linalg.trace",
    "vdot": direct("dot", self="x1", other="x2"),
}  # fmt: skip


def _factors(x: Any, *factors: Any) -> tuple[Any, ...]:
    """The factors of a sum of products: ATen cuts off their fractions for integers."""
    return factors if is_inexact(x.dtype) else tuple(int(factor) for factor in factors)


@into(ROWS)
def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return meta.addbmm(self, batch1, batch2, *_factors(self, beta, alpha))


@into(ROWS)
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return meta.baddbmm(self, batch1, batch2, *_factors(self, beta, alpha))


@into(ROWS)
def addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return meta.addmv(self, mat, vec, *_factors(self, beta, alpha))


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


@into(ROWS)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    powers = meta.linalg.vander(x, N)
    return powers if increasing else meta.flip(powers, (-1,))
