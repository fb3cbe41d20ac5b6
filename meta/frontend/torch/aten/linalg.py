"""Products of vectors and matrices, also by groups of rows; norms, distances and covariances."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_inexact, promote
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten._values import axes, in_dtype

rows({
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
    "vdot": lambda self, other: meta.dot(meta.conj(self), other),
    "addbmm": lambda self, batch1, batch2, *, beta=1, alpha=1:
        meta.addbmm(self, batch1, batch2, *_factors(self, beta, alpha)),
    "baddbmm": lambda self, batch1, batch2, *, beta=1, alpha=1:
        meta.baddbmm(self, batch1, batch2, *_factors(self, beta, alpha)),
    "addmv": lambda self, mat, vec, *, beta=1, alpha=1: meta.addmv(self, mat, vec, *_factors(self, beta, alpha)),
    "tensordot": lambda self, other, dims_self, dims_other: meta.tensordot(self, other, (dims_self, dims_other)),
    "einsum": lambda equation, tensors, *, path=None: meta.einsum(equation, *tensors),
    "corrcoef": "corrcoef", "dist": direct("dist", self="x1"),
    "linalg_cond": "linalg.cond", "linalg_matrix_norm": "linalg.matrix_norm", "linalg_norm": "linalg.norm",
    "pdist": "pdist", "_pdist_forward": "pdist", "renorm": "renorm",
    "linalg_vector_norm": lambda self, ord=2, dim=None, keepdim=False, *, dtype=None:
        meta.linalg.vector_norm(self, ord, axes(dim), keepdim, dtype),
    "frobenius_norm": lambda self, dim, keepdim=False: meta.linalg.vector_norm(self, 2, axes(dim), keepdim),
    "nuclear_norm": lambda self, dim=(-2, -1), keepdim=False: meta.linalg.matrix_norm(self, "nuc", dim, keepdim),
    **dict.fromkeys(("cdist", "_cdist_forward"), lambda x1, x2, p=2, compute_mode=None: meta.cdist(x1, x2, p)),
})  # fmt: skip


def _factors(x: Tensor, *factors: Any) -> tuple[Any, ...]:
    """The factors of a sum of products: ATen cuts off their fractions for integers."""
    return factors if is_inexact(x.dtype) else tuple(int(factor) for factor in factors)


@row()
def cross(self: Tensor, other: Tensor, dim: int | None = None) -> Any:
    """Without `dim` along the first axis of size 3."""
    axis = next((i for i, size in enumerate(self.shape) if size == 3), -1) if dim is None else dim
    return meta.cross(self, other, axis)


@row()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Any:
    powers = meta.linalg.vander(x, N)
    return powers if increasing else meta.flip(powers, (-1,))


@row()
def cov(self: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    dtype = self.dtype if aweights is None else promote(self.dtype, aweights.dtype)
    return meta.cov(in_dtype(self, dtype), correction, fweights, aweights)


@row()
def norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """A number is the order of a vector norm, of all elements along the axes; the names are the same as in
    torch.norm."""
    if p == "nuc":
        return meta.linalg.matrix_norm(self, "nuc", (0, 1) if dim is None else dim, keepdim, dtype)
    return meta.linalg.vector_norm(self, 2 if p in (None, "fro") else p, axes(dim), keepdim, dtype)


@row()
def linalg_matrix_rank(
    self: Tensor, tol: Tensor | float | None = None, hermitian: bool = False, *, atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
) -> Any:  # fmt: skip
    if tol is not None:
        atol, rtol = tol, 0.0
    return meta.linalg.matrix_rank(self, atol, rtol, hermitian)


# --- products of groups of rows with a matrix for each group, as layers of several experts have them ------------------


def _members(ends: Any, count: Any) -> Any:
    """Whether each of `count` positions is in each group, (groups, count). ends: where groups end, in order."""
    ends = meta.cast(ends, "int64")
    starts = meta.concatenate([meta.zeros((1,), "int64", ends.device), ends[:-1]], 0)
    positions = meta.arange(0, count, 1, "int64", ends.device)
    after = meta.greater_equal(positions, meta.expand_dims(starts, 1))
    return meta.logical_and(after, meta.less(positions, meta.expand_dims(ends, 1)))


def rows_by_group(x: Tensor, w: Tensor, ends: Any) -> Any:
    """Rows (n, k) times the matrix of their group, w (groups, k, m): (n, m). Rows behind the last group are 0."""
    products = meta.matmul(meta.expand_dims(x, 0), w)
    return meta.sum(meta.where(meta.expand_dims(_members(ends, x.shape[0]), 2), products, 0), 0)


def columns_by_group(x: Tensor, w: Tensor, ends: Any) -> Any:
    """The matrix of the group of each column, x (groups, n, k), times the columns of w (k, m): (n, m)."""
    products = meta.matmul(x, meta.expand_dims(w, 0))
    return meta.sum(meta.where(meta.expand_dims(_members(ends, w.shape[1]), 1), products, 0), 0)


def sums_by_group(x: Tensor, w: Tensor, ends: Any) -> Any:
    """The products x (n, k) and w (k, m) of the part of k in each group: (groups, n, m)."""
    members = _members(ends, x.shape[1])
    parts = meta.where(meta.expand_dims(members, 1), x, 0), meta.where(meta.expand_dims(members, 2), w, 0)
    return meta.matmul(*parts)


_BY_RANKS = {(2, 3): rows_by_group, (3, 2): columns_by_group, (2, 2): sums_by_group}


@row()
def _grouped_mm(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: str | None = None
) -> Any:
    """`torch.nn.functional.grouped_mm`: of two stacks, the products of their matrices; else `offs` has the ends of the
    groups of rows, of columns, or of the axis that is summed."""
    if bias is not None:
        raise ArgumentError("_grouped_mm", "bias is given", "None, as torch does")
    ranks = self.ndim, mat2.ndim
    if (offs is None) != (ranks == (3, 3)) or min(ranks) < 2 or max(ranks) > 3:
        problem = f"operands with {ranks[0]} and {ranks[1]} axes {'without' if offs is None else 'and'} offs"
        raise ArgumentError(
            "_grouped_mm", problem, "two stacks of matrices without offs, or a matrix among them and offs"
        )
    out = meta.matmul(self, mat2) if offs is None else _BY_RANKS[ranks](self, mat2, offs)
    return out if out_dtype is None else in_dtype(out, out_dtype)
