"""Gradients of inverses, solutions, determinants and functions of matrices (M. Giles, "An extended collection of matrix
derivative results for forward and reverse mode algorithmic differentiation", 2008, unless another source is named)."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex, real_dtype, significand_bits
from meta.ir.type import TensorType
from meta.modes import modes
from meta.op.grad.support import adjoint, conjugate, fit


def _transposed(x: Tensor) -> Tensor:
    return meta.swap_axis(x, -2, -1)


def _as_matrix(x: Tensor) -> Tensor:
    """One number a matrix, (...,), so that it multiplies matrices."""
    return meta.expand_dims(meta.expand_dims(x, -1), -1)


def inv_ex_grad(y_0: Tensor, dy_0: Tensor) -> Tensor:
    """-y^T dy y^T."""
    return -meta.matmul(meta.matmul(y_0, dy_0, True), y_0, False, True)


def solve_ex_grad(a: Tensor, b: TensorType, y_0: Tensor, dy_0: Tensor) -> tuple[Tensor, Tensor]:
    """a^-T dy for b, and -(a^-T dy) y^T for a."""
    db, _ = meta.solve_ex(_transposed(a), dy_0)
    return fit(-meta.matmul(db, y_0, False, True), a), fit(db, b)


def solve_triangular_grad(
    a: Tensor, b: TensorType, upper: bool, unitriangular: bool, y: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """As of `solve_ex`, the gradient of a in the triangle that is read."""
    db = meta.solve_triangular(_transposed(a), dy, not upper, unitriangular)
    da = -meta.matmul(db, y, False, True)
    offset = int(unitriangular)
    read = meta.triu(da, offset) if upper else meta.tril(da, -offset)
    return fit(read, a), fit(db, b)


def det_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy times the cofactors, which exist for singular matrices too (Jacobi's formula)."""
    return meta.cofactor(x) * _as_matrix(dy)


def cofactor_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """The cofactors are polynomials of x, also where it is singular: their derivative, by singular values. In gradients
    that are recorded, invertible matrices have <dy, x^-T> y - y dy^T x^-T, the derivative of det(x) x^-T, whose own
    derivative does not need distinct singular values."""
    if not modes.grad_enabled or x.shape[-1] == 0:
        return _cofactor_derivative(x, dy)
    s = meta.svd(meta.stop_gradient(x), False)[1]
    bound = meta.max(s, -1, True) * (x.shape[-1] * 2.0 ** (6 - significand_bits(real_dtype(x.dtype))))
    is_regular = _as_matrix(meta.greater(meta.min(s, -1), meta.squeeze(bound, -1)))
    diagonal = meta.cast(meta.reshape(meta.arange(1, x.shape[-1] + 1, 1, "int64", x.device), (1, -1)), x.dtype)
    safe = meta.eye(x.shape[-1], None, x.dtype, x.device) * diagonal
    back = _transposed(meta.inv_ex(meta.where(is_regular, x, safe))[0])
    along = meta.sum(dy * back, (-2, -1), True)
    regular = y * along - meta.matmul(meta.matmul(y, dy, False, True), back)
    return meta.where(is_regular, regular, _cofactor_derivative(meta.where(is_regular, safe, x), dy))


def _cofactor_derivative(x: Tensor, dy: Tensor) -> Tensor:
    """For x = u diag(s) v, det(u v) conj(u) d conj(v), where d belongs to diag(s) and e = u^H dy v^H: the products of s
    without s_i and s_j, times -e_ji off the diagonal, and summed with e_jj on it."""
    u, s, v = meta.svd(x, False)
    e = meta.matmul(meta.matmul(adjoint(u), dy), adjoint(v))
    is_zero = meta.equal(s, 0)
    factors = meta.where(is_zero, 1, s)
    zeros = meta.cast(is_zero, "int64")
    rest = meta.sum(zeros, -1, True)
    rest = meta.expand_dims(rest - zeros, -1) - meta.expand_dims(zeros, -2)
    total = _as_matrix(meta.prod(factors, -1))
    pairs = total / (meta.expand_dims(factors, -1) * meta.expand_dims(factors, -2))
    identity = meta.eye(x.shape[-1], None, s.dtype, x.device)
    products = meta.where(meta.logical_and(meta.equal(rest, 0), meta.equal(identity, 0)), pairs, 0)
    products = meta.cast(products, x.dtype)
    diagonal = meta.matmul(products, meta.expand_dims(meta.sum(e * meta.cast(identity, x.dtype), -1), -1))
    d = diagonal * meta.cast(identity, x.dtype) - products * _transposed(e)
    sign = _as_matrix(meta.det(u) * meta.det(v))
    return sign * meta.matmul(meta.matmul(conjugate(u), d), conjugate(v))


def slogdet_grad(x: Tensor, y_0: Tensor, dy_0: Tensor, dy_1: Tensor) -> Tensor:
    """dy x^-H for the logarithm. The sign of real determinants is flat; the sign of complex ones, exp(i p), has the
    gradient i Im(dy conj(sign)) x^-H, from dp = Im(tr(x^-1 dx))."""
    inverse, _ = meta.inv_ex(x)
    factor = meta.complex(dy_1, meta.imag(dy_0 * meta.conj(y_0))) if is_complex(x.dtype) else dy_1
    return adjoint(inverse) * _as_matrix(factor)


def pinv_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """-y^H dy y^H + (I - x y) dy^H y y^H + y^H y dy^H (I - y x), for matrices of constant rank (G. Golub, V. Pereyra,
    "The Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate", 1973)."""
    y_c, dy_c = conjugate(y), conjugate(dy)
    inner = -meta.matmul(meta.matmul(y_c, dy, True), y_c, False, True)
    rows = meta.matmul(dy_c, meta.matmul(y, y_c, False, True), True)
    columns = meta.matmul(meta.matmul(y_c, y, True), dy_c, False, True)
    rows = rows - meta.matmul(x, meta.matmul(y, rows))
    columns = columns - meta.matmul(meta.matmul(columns, y), x)
    return inner + rows + columns


def matrix_exp_grad(x: Tensor, dy: Tensor) -> Tensor:
    """The upper right block of exp([[x^T, dy], [0, x^T]]) (I. Najfeld, T. Havel, "Derivatives of the Matrix Exponential
    and Their Computation", 1995)."""
    back = _transposed(x)
    top = meta.concatenate([back, dy], -1)
    bottom = meta.concatenate([meta.zeros_like(back), back], -1)
    upper, _ = meta.split(meta.matrix_exp(meta.concatenate([top, bottom], -2)), 2, -2)
    return meta.split(upper, 2, -1)[1]
