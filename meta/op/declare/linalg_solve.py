"""Declarations of inverses, solutions of linear systems, determinants and functions of matrices."""

from __future__ import annotations

from meta.dim import same_dim
from meta.dtype import real_dtype
from meta.ir.type import TensorType, TupleType
from meta.op import matrices, rules
from meta.schema import linalg_solve as schema


def _solution(a: TensorType, b: TensorType) -> TensorType:
    """The type of x in a x = b."""
    matrices.require_square("a", a)
    matrices.require_matrix("b", b)
    rules.same_device(a, b)
    rules.require_same_dtype(a=a, b=b)
    n, (rows, k) = a.shape[-1], b.shape[-2:]
    shapes = f"'a' has shape {rules.show(a.shape)}, 'b' has {rules.show(b.shape)}"
    rules.require(same_dim(n, rows), shapes, f"{n} rows in b")
    return b.with_shape((*rules.broadcast_shapes(a.shape[:-2], b.shape[:-2]), n, k))


@matrices.declare("inv_ex", schema=schema.inv_ex, outputs=("inverse", "info"), complex="analytic")
def inv_ex(x: TensorType, check_errors: bool) -> TupleType:
    """Inverses of square matrices, and info, int32 (...,): 0, or the position, from 1, of the first 0 on the diagonal
    of U in P L U: the matrix is singular, and its inverse undefined."""
    matrices.require_square("x", x)
    return TupleType((x, matrices.info_type(x)))


@matrices.declare("solve_ex", schema=schema.solve_ex, outputs=("solution", "info"), complex="analytic")
def solve_ex(a: TensorType, b: TensorType, check_errors: bool) -> TupleType:
    """The solution x of a x = b by LU factorization, and the `info` of a, as in `inv_ex`."""
    solution = _solution(a, b)
    return TupleType((solution, matrices.info_type(a)))


@matrices.declare("solve_triangular", schema=schema.solve_triangular, complex="analytic")
def solve_triangular(a: TensorType, b: TensorType, upper: bool, unitriangular: bool) -> TensorType:
    """The solution x of a x = b for triangular matrices a, by substitution. A 0 on the diagonal gives infinities."""
    return _solution(a, b)


@matrices.declare("det", schema=schema.square, complex="analytic")
def det(x: TensorType) -> TensorType:
    """Determinants of square matrices, (..., n, n) to (...,); 1 for n = 0."""
    matrices.require_square("x", x)
    return x.with_shape(x.shape[:-2])


@matrices.declare("cofactor", schema=schema.square, complex="analytic")
def cofactor(x: TensorType) -> TensorType:
    """The matrices of cofactors det(x) x^-T, of singular matrices too: the gradient of `det`."""
    matrices.require_square("x", x)
    return x


@matrices.declare("slogdet", schema=schema.square, outputs=("sign", "logabsdet"), complex="as_is")
def slogdet(x: TensorType) -> TupleType:
    """The sign of determinants (a complex number of size 1 for complex ones), 0 for singular matrices, and the
    logarithm of their absolute value, then -inf."""
    matrices.require_square("x", x)
    scalar = x.with_shape(x.shape[:-2])
    return TupleType((scalar, scalar.with_dtype(real_dtype(x.dtype))))


@matrices.declare("pinv", schema=schema.pinv, complex="as_is")
def pinv(x: TensorType, atol: TensorType | None, rtol: TensorType | None, hermitian: bool) -> TensorType:
    """Pseudo-inverses, (..., m, n) to (..., n, m), by singular values; those up to max(atol, rtol * the largest) count
    as zero. The gradient supposes that the rank does not change near x."""
    (matrices.require_square if hermitian else matrices.require_matrix)("x", x)
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if tolerance is None:
            continue
        rules.same_device(x, tolerance)
        rules.require_same_dtype(**{"x": x.with_dtype(real_dtype(x.dtype)), name: tolerance})
        shapes = f"'{name}' has shape {rules.show(tolerance.shape)}, 'x' {rules.show(x.shape)}"
        joint = rules.broadcast_shapes(x.shape[:-2], tolerance.shape)
        rules.require(rules.same_shape(joint, x.shape[:-2]), shapes, "a shape that broadcasts to the batch of x")
    return x.with_shape((*x.shape[:-2], x.shape[-1], x.shape[-2]))


@matrices.declare("matrix_exp", schema=schema.square, complex="analytic")
def matrix_exp(x: TensorType) -> TensorType:
    """The exponential sum of x^k / k! of square matrices, by scaling and squaring."""
    matrices.require_square("x", x)
    return x
