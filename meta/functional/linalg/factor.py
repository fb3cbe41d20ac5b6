"""Factorizations of matrices, which raise LinAlgError for a matrix without one."""

from __future__ import annotations

from typing import Any, Literal

import meta
from meta._generated.methods import T, Tensor
from meta.dim import same_dim
from meta.dtype import real_dtype
from meta.functional._axes import identity
from meta.functional._checks import as_dtype, require, require_inexact, require_matrix, require_square
from meta.op.grad.support import adjoint
from meta.op.rules import show


def cholesky(x: T, upper: bool = False) -> T:
    """The lower triangular factor L of Hermitian positive-definite matrices x = L L^H, or the upper one of U^H U.

    x: (..., n, n); only one triangle is read. Raises LinAlgError that names the first matrix of the batch that is not
    positive-definite, TypeInferenceError for other shapes and dtypes. `cholesky_ex` raises no LinAlgError."""
    return meta.cholesky_ex(x, upper, check_errors=True)[0]


def lu_factor(x: T, pivot: bool = True) -> tuple[T, T]:
    """The packed factors of x = P L U and the exchanges of rows, as `lu_factor_ex` has them, for `lu_solve`.

    x: (..., m, n). Raises LinAlgError for a singular matrix, TypeInferenceError for other shapes and dtypes."""
    factors, pivots, _ = meta.lu_factor_ex(x, pivot, check_errors=True)
    return factors, pivots


def lu(x: T, pivot: bool = True) -> tuple[T, T, T]:
    """P (..., m, m), L (..., m, k) with ones on its diagonal and U (..., k, n) of x = P L U, k = min(m, n); P is empty,
    (0,), without `pivot`.

    Singular matrices have such factors too. Raises TypeInferenceError for other shapes and dtypes."""
    factors, pivots, _ = meta.lu_factor_ex(x, pivot)
    order, lower, upper = lu_unpack(factors, pivots, unpack_pivots=pivot)
    return order, lower, upper


def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Any, Any, Any]:
    """P, L and U from the results of `lu_factor`; empty tensors, (0,), in place of those that are not asked for.

    Raises TypeInferenceError for pivots of another shape than the factors need or another dtype than int32."""
    require_matrix("lu_unpack", factors, "factors")
    m, n = factors.shape[-2:]
    k = _smaller(m, n)
    pivot_shape = (*factors.shape[:-2], k)
    fits = not unpack_pivots or (len(pivot_shape) == pivots.ndim and all(map(same_dim, pivot_shape, pivots.shape)))
    require("lu_unpack", fits, f"'pivots' has shape {show(pivots.shape)}", f"shape {show(pivot_shape)}")
    is_int32 = not unpack_pivots or pivots.dtype == "int32"
    require("lu_unpack", is_int32, f"'pivots' has dtype {pivots.dtype}", "int32", "pass the pivots of lu_factor")
    empty = meta.zeros((0,), factors.dtype, factors.device)
    exchanges = _permutation_matrix(factors, pivots) if unpack_pivots else empty
    if not unpack_data:
        return exchanges, empty, empty
    lower = meta.tril(factors[..., :, :k] if not same_dim(n, k) else factors, -1)
    upper = meta.triu(factors[..., :k, :] if not same_dim(m, k) else factors)
    return exchanges, lower + identity(factors, m, k, factors.dtype), upper


def _permutation_matrix(factors: T, pivots: Any) -> T:
    """P with P[order[i], i] = 1, for rows that were put in that order."""
    m = factors.shape[-2]
    order = meta.pivots_to_permutation(pivots, m)
    return as_dtype(meta.one_hot(order, m, real_dtype(factors.dtype), -2), factors.dtype)


def _smaller(m: object, n: Any) -> Any:
    return n if same_dim(m, n) else min(m, n)


def qr(x: Tensor, mode: Literal["reduced", "complete", "r"] = "reduced") -> tuple[Tensor, Tensor]:
    """Orthonormal columns q and upper triangular r with x = q r; q is (..., m, k) and r (..., k, n), k = min(m, n), or
    m in mode "complete"; with "r" q is empty, (0,).

    The diagonal of r may be negative, as LAPACK has it. Raises TypeInferenceError for another mode, shape and dtype."""
    modes = ("reduced", "complete", "r")
    require("qr", mode in modes, f"mode is {mode!r}", " or ".join(map(repr, modes)))
    q, r = meta.qr(x, mode == "complete")
    return (meta.zeros((0,), x.dtype, x.device), r) if mode == "r" else (q, r)


def svdvals(x: T) -> T:
    """The singular values of matrices, (..., m, n) to (..., min(m, n)), descending.

    Raises TypeInferenceError for other shapes and dtypes."""
    return meta.svd(x, False)[1]


def eigvals(x: T) -> T:
    """The eigenvalues of square matrices, (..., n, n) to (..., n), complex, in the order of LAPACK.

    Raises TypeInferenceError for other shapes and dtypes."""
    return meta.eig(x)[0]


def eigvalsh(x: T, upper: bool = False) -> T:
    """The eigenvalues of Hermitian matrices, (..., n, n) to (..., n), ascending; one triangle of x is read.

    Raises TypeInferenceError for other shapes and dtypes."""
    return meta.eigh(x, upper)[0]


def cholesky_inverse(x: T, upper: bool = False) -> T:
    """The inverses of L L^H, or of U^H U, from the factors of `cholesky`, (..., n, n).

    Raises TypeInferenceError for other shapes and dtypes."""
    require_square("cholesky_inverse", x)
    return cholesky_solve(identity(x, x.shape[-1], None, x.dtype), x, upper)


def cholesky_solve(b: T, x: T, upper: bool = False) -> T:
    """The solution y of L L^H y = b, or of U^H U y = b, from the factors x of `cholesky`.

    b: (..., n, k), x: (..., n, n); batches broadcast. Raises TypeInferenceError for other shapes and dtypes."""
    require_matrix("cholesky_solve", b, "b")
    require_square("cholesky_solve", x)
    require_inexact("cholesky_solve", x)
    turned = adjoint(x)
    first, second = (turned, x) if upper else (x, turned)
    return meta.solve_triangular(second, meta.solve_triangular(first, b, False), True)
