"""Norms, distances and covariances."""

from __future__ import annotations

from typing import Any

import meta
from meta.dtype import promote
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import axes, in_dtype

ROWS: Rows = {
    "corrcoef": "corrcoef", "dist": direct("dist", self="x1"),
    "linalg_cond": "linalg.cond", "linalg_matrix_norm": "linalg.matrix_norm", "linalg_norm": "linalg.norm",
    "pdist": "pdist", "_pdist_forward": "pdist", "renorm": "renorm",
}  # fmt: skip


@into(ROWS)
def cov(self: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    dtype = self.dtype if aweights is None else promote(self.dtype, aweights.dtype)
    return meta.cov(in_dtype(self, dtype), correction, fweights, aweights)


@into(ROWS)
def norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """A number is the order of a vector norm, of all elements along the axes; the names are the same as in
    torch.norm."""
    if p == "nuc":
        return meta.linalg.matrix_norm(self, "nuc", (0, 1) if dim is None else dim, keepdim, dtype)
    return meta.linalg.vector_norm(self, 2 if p in (None, "fro") else p, axes(dim), keepdim, dtype)


@into(ROWS)
def linalg_vector_norm(self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return meta.linalg.vector_norm(self, ord, axes(dim), keepdim, dtype)


@into(ROWS)
def frobenius_norm(self: Any, dim: Any, keepdim: bool = False) -> Any:
    return meta.linalg.vector_norm(self, 2, axes(dim), keepdim)


@into(ROWS)
def nuclear_norm(self: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    return meta.linalg.matrix_norm(self, "nuc", dim, keepdim)


@into(ROWS, "cdist", "_cdist_forward")
def cdist(x1: Any, x2: Any, p: float = 2, compute_mode: Any = None) -> Any:
    return meta.cdist(x1, x2, p)


@into(ROWS)
def linalg_matrix_rank(
    self: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Any:
    if tol is not None:
        atol, rtol = tol, 0.0
    return meta.linalg.matrix_rank(self, atol, rtol, hermitian)
