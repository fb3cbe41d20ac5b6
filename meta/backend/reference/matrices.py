"""Gaussian elimination and substitution in NumPy, on all matrices of a batch at once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


def lu_factor(x: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """The packed factors of P L U, the row exchanges counted from 1, and the position from 1 of the first pivot that is
    0, or 0 (G. Golub, C. Van Loan, "Matrix Computations", 3.4: outer products, with partial pivoting)."""
    *batch, m, n = x.shape
    lu = x.reshape(prod(batch), m, n).copy()
    each = np.arange(len(lu))
    k = min(m, n)
    pivots = np.tile(np.arange(1, k + 1, dtype=np.int32), (len(lu), 1))
    info = np.zeros(len(lu), np.int32)
    for j in range(k):
        if pivot:
            column = np.abs(lu[:, j:, j].real) + np.abs(lu[:, j:, j].imag)  # LAPACK's size of complex numbers
            other = j + np.argmax(np.where(np.isnan(column), -1, column), 1)
            pivots[:, j] = other + 1
            lu[each, j], lu[each, other] = lu[each, other], lu[each, j]
        diagonal = lu[:, j, j]
        info = np.where((info == 0) & (diagonal == 0), j + 1, info)
        lu[:, j + 1 :, j] /= np.where(diagonal == 0, 1, diagonal)[:, None]
        lu[:, j + 1 :, j + 1 :] -= lu[:, j + 1 :, j, None] * lu[:, j, None, j + 1 :]
    return np.reshape(lu, x.shape), np.reshape(pivots, (*batch, k)), np.reshape(info, batch).astype(np.int32)


def permutation(pivots: NDArray[Any], size: int) -> NDArray[np.int64]:
    """The order of rows, int64 (..., size), after exchanges of row i and row pivots[i] - 1, if there is such a row."""
    *batch, k = pivots.shape
    flat = np.reshape(pivots, (prod(batch), k)).astype(np.int64) - 1
    flat = np.where((flat >= 0) & (flat < size), flat, range(k))
    order = np.tile(np.arange(size), (len(flat), 1))
    each = np.arange(len(flat))
    for i in range(k):
        other = flat[:, i]
        order[each, i], order[each, other] = order[each, other], order[each, i]
    return np.reshape(order, (*batch, size))


def substitute(a: Any, b: Any, upper: bool, unitriangular: bool = False) -> Any:
    """The solution of a x = b for triangular matrices, row by row; batches broadcast."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n = a.shape[-1]
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    for i in reversed(range(n)) if upper else range(n):
        solved = slice(i + 1, n) if upper else slice(0, i)
        x[..., i, :] -= (a[..., i, None, solved] @ x[..., solved, :])[..., 0, :]
        if not unitriangular:
            x[..., i, :] /= a[..., i, i, None]
    return x


def solve(a: Any, b: Any) -> tuple[Any, Any]:
    """The solution of a x = b and the `info` of the LU factorization of a."""
    lu, pivots, info = lu_factor(a)
    order = permutation(pivots, a.shape[-1])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    permuted = np.take_along_axis(rows, np.broadcast_to(order, (*batch, order.shape[-1]))[..., None], -2)
    return substitute(lu, substitute(lu, permuted, False, True), True), info
