"""Factorizations in NumPy, whose QR, singular values and eigenvalues are LAPACK's. Cholesky and LU, which NumPy
lacks or offers without `info`, run column by column on all matrices of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.matrices import lu_factor, permutation
from meta.op import matrices
from meta.op.dialect.reference import DIALECT


def cholesky_ex(x: Any, upper: bool, check_errors: bool) -> Any:
    # Algorithm: the columns of the lower factor from left to right (G. Golub, C. Van Loan, "Matrix Computations", 4.2).
    lower = np.tril(x.swapaxes(-1, -2).conj() if upper else x).copy()
    info = np.zeros(x.shape[:-2], np.int32)
    for j in range(x.shape[-1]):
        row = lower[..., j, :j, None].conj()
        lower[..., j:, j] -= (lower[..., j:, :j] @ row)[..., 0]
        pivot = lower[..., j, j].real
        info = np.where((info == 0) & ~(pivot > 0), j + 1, info).astype(np.int32)
        lower[..., j:, j] /= np.sqrt(pivot)[..., None]
    if check_errors:
        matrices.require_positive_definite(info)
    return (lower.swapaxes(-1, -2).conj() if upper else lower), info


def lu_factor_ex(x: Any, pivot: bool, check_errors: bool) -> Any:
    factors, pivots, info = lu_factor(x, pivot)
    if check_errors:
        matrices.require_invertible("lu_factor", info)
    return factors, pivots, info


def pivots_to_permutation(pivots: Any, size: int) -> Any:
    return permutation(pivots, size)


def qr(x: Any, complete: bool) -> Any:
    return tuple(np.linalg.qr(x, "complete" if complete else "reduced"))


@matrices.converging("svd")
def svd(x: Any, full_matrices: bool) -> Any:
    return tuple(np.linalg.svd(x, full_matrices))


@matrices.converging("eigh")
def eigh(x: Any, upper: bool) -> Any:
    return tuple(np.linalg.eigh(x, "U" if upper else "L"))


for _function in (cholesky_ex, lu_factor_ex, pivots_to_permutation, qr, svd, eigh):
    DIALECT.implement(_function.__name__, _function)
