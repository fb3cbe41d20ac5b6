"""Declarations of matrix factorizations. Matrices are the last two axes, all axes before them are batches."""

from __future__ import annotations

from meta.dim import Dim, same_dim
from meta.dtype import real_dtype
from meta.ir.type import TensorType, TupleType
from meta.op import matrices, rules
from meta.op.positions import Positions
from meta.schema import linalg_factor as schema


def _smaller(m: Dim, n: Dim) -> Dim:
    """The smaller of two sizes. Raises TypeInferenceError for symbolic sizes that differ."""
    if same_dim(m, n):
        return n
    is_static = isinstance(m, int) and isinstance(n, int)
    rules.require(
        is_static, f"matrices of {m} rows and {n} columns", "known sizes, or a square", "trace with static sizes"
    )
    return min(m, n)


@matrices.declare("cholesky_ex", schema=schema.cholesky_ex, outputs=("factor", "info"), complex="as_is")
def cholesky_ex(x: TensorType, upper: bool, check_errors: bool) -> TupleType:
    """The lower triangular factor L of Hermitian positive-definite matrices L L^H, or the upper one of U^H U, and info,
    int32 (...,): 0, or the order of the first leading minor that is not positive; the factor is undefined then."""
    matrices.require_square("x", x)
    return TupleType((x, matrices.info_type(x)))


@matrices.declare("lu_factor_ex", schema=schema.lu_factor_ex, outputs=("lu", "pivots", "info"), complex="analytic")
def lu_factor_ex(x: TensorType, pivot: bool, check_errors: bool) -> TupleType:
    """The factors of matrices P L U by Gaussian elimination with exchanges of rows: lu has L below the diagonal (whose
    own is ones) and U on and above it; pivots, int32 (..., min(m, n)): row i was exchanged with row pivots[i] - 1;
    info, int32 (...,): 0, or the position, from 1, of the first 0 on the diagonal of U."""
    matrices.require_matrix("x", x)
    k = _smaller(*x.shape[-2:])
    batch = x.shape[:-2]
    pivots = x.with_shape((*batch, k)).with_dtype("int32")
    return TupleType((x, pivots, matrices.info_type(x)))


def _rows(_: object, size: object, *, out: object) -> Positions:
    return Positions(0, (size,), first=1)


@matrices.declare("pivots_to_permutation", schema=schema.pivots_to_permutation, amp="keep", positions=_rows)
def pivots_to_permutation(pivots: TensorType, size: Dim) -> TensorType:
    """The order of rows, int64 (..., size), that exchanges of rows lead to: row i of P^T x is row order[i] of x."""
    rules.require_int("pivots", pivots)
    rules.require(pivots.ndim > 0, "'pivots' has shape ()", "at least one axis")
    k = pivots.shape[-1]
    fits = not (isinstance(k, int) and isinstance(size, int)) or k <= size
    rules.require(fits, f"size is {size} for {k} pivots", f"at least {k}")
    return pivots.with_shape((*pivots.shape[:-1], size)).with_dtype("int64")


@matrices.declare("qr", schema=schema.qr, outputs=("q", "r"), complex="as_is")
def qr(x: TensorType, complete: bool) -> TupleType:
    """Orthonormal columns q and upper triangular r with q r = x: (..., m, k) and (..., k, n), k = min(m, n). Signs are
    as from LAPACK's Householder reflections: the diagonal of r may be negative."""
    matrices.require_matrix("x", x)
    m, n = x.shape[-2:]
    k = m if complete else _smaller(m, n)
    batch = x.shape[:-2]
    return TupleType((x.with_shape((*batch, m, k)), x.with_shape((*batch, k, n))))


@matrices.declare("svd", schema=schema.svd, outputs=("u", "s", "vh"), complex="as_is")
def svd(x: TensorType, full_matrices: bool) -> TupleType:
    """Singular values s (..., k), descending, with orthonormal columns u and rows vh: x = u[..., :k] diag(s)
    vh[..., :k, :], k = min(m, n). The signs (phases) of singular vectors are arbitrary; their gradient needs distinct
    singular values. For a rank-deficient matrix, u and vh have no gradient."""
    matrices.require_matrix("x", x)
    m, n = x.shape[-2:]
    k = _smaller(m, n)
    batch = x.shape[:-2]
    rows, columns = (m, n) if full_matrices else (k, k)
    values = x.with_shape((*batch, k)).with_dtype(real_dtype(x.dtype))
    return TupleType((x.with_shape((*batch, m, rows)), values, x.with_shape((*batch, columns, n))))


@matrices.declare("eigh", schema=schema.eigh, outputs=("w", "v"), complex="as_is")
def eigh(x: TensorType, upper: bool) -> TupleType:
    """Eigenvalues w (..., n), ascending, and eigenvectors, the orthonormal columns of v, of Hermitian matrices. The
    signs (phases) of eigenvectors are arbitrary; their gradient needs distinct eigenvalues."""
    matrices.require_square("x", x)
    return TupleType((x.with_shape(x.shape[:-1]).with_dtype(real_dtype(x.dtype)), x))
