"""Solutions of linear systems by ATen: LAPACK on the CPU, cuSOLVER and cuBLAS on CUDA."""

from __future__ import annotations

from typing import Any

import torch

from meta.op import matrices
from meta.op.dialect.torch import DIALECT


def inv_ex(x: Any, check_errors: bool, *, out: Any) -> None:
    inverse, info = torch.linalg.inv_ex(x)
    if check_errors:
        matrices.require_invertible("inv", info.cpu().numpy())
    out[0].copy_(inverse)
    out[1].copy_(info)


def solve_ex(a: Any, b: Any, check_errors: bool, *, out: Any) -> None:
    # LAPACK's info depends only on `a`, so that a broadcast factorization runs once.
    factors, pivots, info = torch.linalg.lu_factor_ex(a)
    if check_errors:
        matrices.require_invertible("solve", info.cpu().numpy())
    out[0].copy_(torch.linalg.lu_solve(factors, pivots, b))
    out[1].copy_(info)


def solve_triangular(a: Any, b: Any, upper: bool, unitriangular: bool, *, out: Any) -> None:
    out.copy_(torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular))


def det(x: Any, *, out: Any) -> None:
    out.copy_(torch.linalg.det(x))


@matrices.converging("cofactor")
def cofactor(x: Any, *, out: Any) -> None:
    # det(x) x^-T = det(u) det(vh) conj(u diag(products of the other singular values) vh), without a division by zeros.
    u, s, vh = torch.linalg.svd(x)
    ones = torch.ones_like(s[..., :1])
    before = torch.cat([ones, s[..., :-1]], -1).cumprod(-1)
    after = torch.cat([s[..., 1:], ones], -1).flip(-1).cumprod(-1).flip(-1)
    others = before * after if x.shape[-1] else s
    sign = torch.linalg.det(u) * torch.linalg.det(vh)
    sign = sign if x.is_complex() else sign.round()
    out.copy_(((u * others.unsqueeze(-2)) @ vh).conj() * sign[..., None, None])


def slogdet(x: Any, *, out: Any) -> None:
    sign, logabsdet = torch.linalg.slogdet(x)
    out[0].copy_(sign)
    out[1].copy_(logabsdet)


@matrices.converging("pinv")
def pinv(x: Any, atol: Any, rtol: Any, hermitian: bool, *, out: Any) -> None:
    out.copy_(torch.linalg.pinv(x, atol=atol, rtol=rtol, hermitian=hermitian))


def matrix_exp(x: Any, *, out: Any) -> None:
    out.copy_(torch.linalg.matrix_exp(x))


for _function in (inv_ex, solve_ex, solve_triangular, det, cofactor, slogdet, pinv, matrix_exp):
    DIALECT.implement(_function.__name__, _function)
