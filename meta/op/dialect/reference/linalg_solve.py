"""Inverses, solutions, determinants and exponentials of matrices in NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from meta.backend.reference.matrices import solve, substitute
from meta.op import matrices
from meta.op.dialect.reference import DIALECT

_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM = 5.371920351148152
"""The coefficients of the diagonal Padé approximant of degree 13 to exp, and the norm up to which it is exact in
float64 (N. Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited", 2005)."""


def inv_ex(x: Any, check_errors: bool) -> Any:
    inverse, info = solve(x, np.eye(x.shape[-1], dtype=x.dtype))
    if check_errors:
        matrices.require_invertible("inv", info)
    return inverse, info


def solve_ex(a: Any, b: Any, check_errors: bool) -> Any:
    solution, info = solve(a, b)
    if check_errors:
        matrices.require_invertible("solve", info)
    return solution, info


def solve_triangular(a: Any, b: Any, upper: bool, unitriangular: bool) -> Any:
    return substitute(a, b, upper, unitriangular)


def det(x: Any) -> Any:
    return np.linalg.det(x)


@matrices.converging("cofactor")
def cofactor(x: Any) -> Any:
    # det(x) x^-T = det(u) det(vh) conj(u diag(products of the other singular values) vh), without a division by zeros.
    n = x.shape[-1]
    if n == 0:
        return x
    u, s, vh = np.linalg.svd(x)
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    sign = np.linalg.det(u) * np.linalg.det(vh)
    sign = sign if x.dtype.kind == "c" else np.rint(sign)
    return np.conj((u * (before * after)[..., None, :]) @ vh) * sign[..., None, None]


def slogdet(x: Any) -> Any:
    return tuple(np.linalg.slogdet(x))


@matrices.converging("pinv")
def pinv(x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    m, n = x.shape[-2:]
    batch = x.shape[:-2]
    if 0 in (m, n):
        return np.zeros((*batch, n, m), x.dtype)
    if hermitian:
        values, u = np.linalg.eigh(x)
        vh = u.swapaxes(-1, -2).conj()
    else:
        u, values, vh = np.linalg.svd(x, full_matrices=False)
    size = np.abs(values)
    relative = (max(m, n) * np.finfo(x.dtype).eps if atol is None else 0.0) if rtol is None else rtol[..., None]
    least = np.maximum(0.0 if atol is None else atol[..., None], relative * size.max(-1, keepdims=True))
    inverse = np.where(size > least, 1 / np.where(values == 0, 1, values), 0).astype(size.dtype)
    return vh.swapaxes(-1, -2).conj() @ (inverse[..., None] * u.swapaxes(-1, -2).conj())


def matrix_exp(x: Any) -> Any:
    *batch, n, _ = x.shape
    if not x.size:
        return x
    wide = x.astype(np.result_type(x, np.float64)).reshape(prod(batch), n, n)
    norms = np.abs(wide).sum(-2).max(-1)
    squarings = np.ceil(np.log2(np.maximum(norms / _PADE_NORM, 1)))
    squarings = np.where(np.isfinite(squarings), squarings, 0).astype(int)
    scaled = wide / (2.0**squarings)[:, None, None]
    eye = np.broadcast_to(np.eye(n), wide.shape)
    powers = [eye, scaled @ scaled]
    powers.append(powers[1] @ powers[1])
    powers.append(powers[2] @ powers[1])
    c = _PADE
    even = powers[3] @ (c[12] * powers[3] + c[10] * powers[2] + c[8] * powers[1]) + sum(
        c[2 * i] * powers[i] for i in range(4)
    )
    odd = powers[3] @ (c[13] * powers[3] + c[11] * powers[2] + c[9] * powers[1]) + sum(
        c[2 * i + 1] * powers[i] for i in range(4)
    )
    odd = scaled @ odd
    result, _ = solve(even - odd, even + odd)
    for step in range(int(squarings.max())):
        squared = result @ result
        result = np.where((squarings > step)[:, None, None], squared, result)
    return result.reshape(*batch, n, n).astype(x.dtype)


for _function in (inv_ex, solve_ex, solve_triangular, det, cofactor, slogdet, pinv, matrix_exp):
    DIALECT.implement(_function.__name__, _function)
