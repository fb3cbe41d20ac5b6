"""Gradients of inverses, solutions, determinants and functions of matrices (M. Giles, "An extended collection of matrix
derivative results for forward and reverse mode algorithmic differentiation", 2008, unless another source is named)."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex
from meta.ir.type import TensorType
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
    """<dy, x^-T> y - y dy^T x^-T: the derivative of det(x) x^-T. x is invertible."""
    inverse, _ = meta.inv_ex(x)
    back = _transposed(inverse)
    along = meta.sum(dy * back, (-2, -1), True)
    return y * along - meta.matmul(meta.matmul(y, dy, False, True), back)


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
