"""Gradients of matrix factorizations. The gradients of singular vectors and eigenvectors divide by the differences of
(squared) values, and are infinite where two of them are equal."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim, same_dim
from meta.dtype import is_complex
from meta.errors import GradientError
from meta.ir.type import TensorType
from meta.op.grad.support import adjoint, conjugate


def _transposed(x: Tensor) -> Tensor:
    return meta.swap_axis(x, -2, -1)


def _eye(like: Tensor, n: Dim, dtype: str) -> Tensor:
    return meta.eye(n, None, dtype, like.device)  # type: ignore[arg-type]


def _over_columns(v: Tensor) -> Tensor:
    """A vector (..., k) that multiplies columns."""
    return meta.expand_dims(v, -2)


def _over_rows(v: Tensor) -> Tensor:
    return meta.expand_dims(v, -1)


def _differences(v: Tensor) -> Tensor:
    """v_j - v_i at (..., i, j), and 1 on the diagonal, which is divided by."""
    return _over_columns(v) - _over_rows(v) + _eye(v, v.shape[-1], v.dtype)


def _right_solved(triangle: Tensor, x: Tensor, upper: bool, unitriangular: bool = False) -> Tensor:
    """x a^-T for a triangular matrix a: the transpose of the solution of a y = x^T."""
    return _transposed(meta.solve_triangular(triangle, _transposed(x), upper, unitriangular))


def cholesky_ex_grad(upper: bool, y_0: Tensor, dy_0: Tensor) -> Tensor:
    """L^-H P L^-1, Hermitian, with P the lower triangle of L^H dL mirrored and halved (I. Murray, "Differentiation of
    the Cholesky decomposition", 2016, section 3)."""
    factor, d = (adjoint(y_0), adjoint(dy_0)) if upper else (y_0, dy_0)
    triangle = meta.tril(meta.matmul(conjugate(factor), d, True))
    mirrored = (triangle + adjoint(meta.tril(triangle, -1))) * 0.5
    back = adjoint(factor)
    half = meta.solve_triangular(back, mirrored, True)
    solved = meta.solve_triangular(back, adjoint(half), True)
    # An imaginary diagonal, which no Hermitian x can follow, stays as it is in torch.
    return adjoint(solved) if is_complex(solved.dtype) else solved


def cholesky_ex_tangent(x: Tensor, upper: bool, y_0: Tensor, x_t: Tensor) -> tuple[Any, None]:
    """L P, with P the lower triangle of L^-1 dx L^-H with a halved diagonal (I. Murray, 2016, section 3.1)."""
    factor = adjoint(y_0) if upper else y_0
    inner = adjoint(meta.solve_triangular(factor, adjoint(meta.solve_triangular(factor, x_t, False)), False))
    half = (meta.tril(inner) + meta.tril(inner, -1)) * 0.5
    out = meta.matmul(factor, half)
    return (adjoint(out) if upper else out), None


def lu_factor_ex_grad(x: TensorType, y_0: Tensor, y_1: Tensor, dy_0: Tensor) -> Tensor:
    """P L^-T (tril(L^T dL, -1) + triu(dU U^T)) U^-T of square matrices. From L dU + dL U = P^T dx; rows below, or
    columns beyond, the square part are L2 = x2 U^-1, or U2 = L^-1 x2, and add to the gradient of the square factors."""
    m, n = x.shape[-2:]
    order = meta.argsort(meta.pivots_to_permutation(y_1, m), -1)  # type: ignore[arg-type]
    k = y_1.shape[-1]
    tall, wide = not same_dim(m, k), not same_dim(n, k)
    square, d = (y_0[..., :k, :k], dy_0[..., :k, :k]) if tall or wide else (y_0, dy_0)
    lower = meta.tril(square, -1) + _eye(square, k, square.dtype)
    upper = meta.triu(square)
    of_lower = meta.matmul(lower, meta.tril(d, -1), True)
    of_upper = meta.matmul(meta.triu(d), upper, False, True)
    if wide:
        of_lower = of_lower - meta.matmul(dy_0[..., :, k:], y_0[..., :, k:], False, True)
    if tall:
        of_upper = of_upper - meta.matmul(y_0[..., k:, :], dy_0[..., k:, :], True)
    inner = _right_solved(upper, meta.tril(of_lower, -1) + meta.triu(of_upper), True)
    back = _transposed(lower)
    if wide:
        inner = meta.concatenate([inner, dy_0[..., :, k:]], -1)
    result = meta.solve_triangular(back, inner, True, True)
    if tall:
        result = meta.concatenate([result, _right_solved(upper, dy_0[..., k:, :], True)], -2)
    rows = meta.broadcast_to(meta.expand_dims(order, -1), result.shape)
    return meta.gather(result, -2, rows)


def qr_grad(x: TensorType, complete: bool, y_0: Tensor, y_1: Tensor, dy_0: Tensor, dy_1: Tensor) -> Tensor:
    """(dQ + Q copyltu(M)) R^-H with M = R dR^H - dQ^H Q and copyltu mirroring the lower triangle (M. Seeger et al.,
    "Auto-Differentiating Linear Algebra", 2017, for as many rows as columns, or more; D. Roberts, L. Roberts, "QR and
    LQ Decomposition Matrix Backpropagation Algorithms for Square, Wide, and Deep Matrices", 2020, for fewer)."""
    m, n = x.shape[-2:]
    k = y_1.shape[-2]
    if complete and not same_dim(k, n) and not (isinstance(m, int) and isinstance(n, int) and m < n):
        problem = f"q of the complete factorization of matrices of {m} rows and {n} columns has no gradient"
        raise GradientError("qr", problem, "at most as many rows as columns", "use complete=False")
    if same_dim(k, n):
        return _qr_of_tall(y_0, y_1, dy_0, dy_1)
    rest, d_rest = y_1[..., :, k:], dy_1[..., :, k:]
    from_rest = meta.matmul(y_0, meta.matmul(rest, conjugate(d_rest), False, True))
    square = _qr_of_tall(y_0, y_1[..., :, :k], dy_0 + from_rest, dy_1[..., :, :k])
    return meta.concatenate([square, meta.matmul(y_0, d_rest)], -1)


def _qr_of_tall(q: Tensor, r: Tensor, dq: Tensor, dr: Tensor) -> Tensor:
    inner = meta.matmul(r, conjugate(dr), False, True) - meta.matmul(conjugate(dq), q, True)
    return _right_solved(conjugate(r), dq + meta.matmul(q, _mirrored(inner)), True)


def _mirrored(x: Tensor) -> Tensor:
    """The Hermitian matrices of these lower triangles; of the diagonal the real part."""
    triangle = meta.tril(x)
    if not is_complex(x.dtype):
        return triangle + _transposed(meta.tril(triangle, -1))
    half = (triangle + meta.tril(triangle, -1)) * 0.5
    return half + adjoint(half)


def svd_grad(y_0: Tensor, y_1: Tensor, y_2: Tensor, dy_0: Tensor | None, dy_1: Any, dy_2: Tensor | None) -> Tensor:
    """U [(F * (U^H dU - dU^H U)) S + S (F * (V^H dV - dV^H V)) + diag(dS)] V^H, with F_ij = 1 / (s_j^2 - s_i^2) off the
    diagonal, and (I - U U^H) dU S^-1 V^H + U S^-1 dV^H (I - V V^H) for columns beyond the square part (J. Townsend,
    "Differentiating the Singular Value Decomposition", 2016). A loss that does not depend on the phases of complex
    singular vectors adds the imaginary diagonal of U^H dU / S. Gradients of columns of full matrices beyond the
    singular values, which are arbitrary, do not count."""
    s, k = y_1, y_1.shape[-1]
    u, vh = _cut(y_0, -1, k), _cut(y_2, -2, k)
    if dy_0 is None and dy_2 is None:
        return meta.matmul(u * _over_columns(dy_1), vh)
    is_phased = is_complex(y_0.dtype)
    gaps = _differences(s * s)
    inner = meta.zeros_like(gaps) if dy_1 is None else _eye(s, k, s.dtype) * _over_rows(dy_1)
    outside: list[Any] = []
    if dy_0 is not None:
        du = _cut(dy_0, -1, k)
        along = meta.matmul(conjugate(u), du, True)
        turned = along - adjoint(along)
        inner = inner + turned / gaps * _over_columns(s)
        if is_phased:
            inner = inner + _eye(s, k, s.dtype) * turned / (_over_columns(s) * 2)
        if not same_dim(u.shape[-2], k):
            outside.append(meta.matmul((du - meta.matmul(u, along)) / _over_columns(s), vh))
    if dy_2 is not None:
        dvh = _cut(dy_2, -2, k)
        along = meta.matmul(vh, conjugate(dvh), False, True)
        inner = inner + (along - adjoint(along)) / gaps * _over_rows(s)
        if not same_dim(vh.shape[-1], k):
            beyond = dvh - meta.matmul(conjugate(along), vh, True)
            outside.append(meta.matmul(u, beyond / _over_rows(s)))
    return sum(outside, meta.matmul(meta.matmul(u, inner), vh))


def _cut(x: Tensor, axis: int, size: Dim) -> Tensor:
    """The first `size` elements along one of the last two axes."""
    if same_dim(x.shape[axis], size):
        return x
    return x[..., :size] if axis == -1 else x[..., :size, :]


def eigh_grad(y_0: Tensor, y_1: Tensor, dy_0: Any, dy_1: Tensor | None) -> Tensor:
    """V (diag(dw) + (V^H dV - dV^H V) / 2 / (w_j - w_i)) V^H, Hermitian (M. Giles, "An extended collection of matrix
    derivative results for forward and reverse mode algorithmic differentiation", 2008, section 3.1)."""
    if dy_1 is None:
        return meta.matmul(y_1 * _over_columns(dy_0), conjugate(y_1), False, True)
    along = meta.matmul(conjugate(y_1), dy_1, True)
    inner = (along - adjoint(along)) * 0.5 / _differences(y_0)
    diagonal = meta.zeros_like(inner) if dy_0 is None else meta.broadcast_to(_over_rows(dy_0), inner.shape)
    inner = meta.where(_eye(inner, y_0.shape[-1], "bool"), diagonal, inner)
    return meta.matmul(meta.matmul(y_1, inner), conjugate(y_1), False, True)


def eigh_tangent(upper: bool, y_0: Tensor, y_1: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
    """The real diagonal of P = V^H dx V, and V times the rest of P / (w_j - w_i) (M. Giles, 2008, section 3.1)."""
    along = meta.matmul(meta.matmul(conjugate(y_1), x_t, True), y_1)
    diagonal = _eye(along, y_0.shape[-1], "bool")
    values = meta.sum(meta.where(diagonal, along, 0), -1)
    turned = meta.where(diagonal, 0, along / _differences(y_0))
    return (meta.real(values) if is_complex(values.dtype) else values), meta.matmul(y_1, turned)
