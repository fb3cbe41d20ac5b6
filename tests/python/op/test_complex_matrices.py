"""Linear algebra of complex matrices, and eigenvalues of general ones: dialects, gradients against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import TypeInferenceError
from meta.op.grad.support import adjoint

Function = Callable[..., Any]

_RNG = np.random.default_rng(0)
_REAL = _RNG.standard_normal((2, 3, 3)) + 2 * np.eye(3)
_COMPLEX = _REAL + 1j * _RNG.standard_normal((2, 3, 3))
_SIDE = _RNG.standard_normal((2, 3, 2)) + 1j * _RNG.standard_normal((2, 3, 2))


def _values(m: Any, x: Any) -> Any:
    w, _ = m.linalg.eig(x) if m is torch else m.eig(x)
    return w * w


def _vectors(m: Any, x: Any) -> Any:
    """What does not depend on the phases of eigenvectors."""
    w, v = m.linalg.eig(x) if m is torch else m.eig(x)
    return m.abs(v) * m.real(w)[..., None, :] if m is torch else m.abs(v) * m.expand_dims(m.real(w), -2)


_POSITIVE = _COMPLEX @ np.conj(_COMPLEX.swapaxes(-1, -2)) + 3 * np.eye(3)
_TALL, _WIDE = _COMPLEX[..., :2], _COMPLEX[..., :2, :]
_ROW = _COMPLEX[0, 0] * 0.7


def _symmetric(m: Any, x: Any) -> Any:
    return (x + (x.mH if m is torch else adjoint(x))) * 0.5


def _cholesky(upper: bool) -> Function:
    return lambda m, x: m.linalg.cholesky(_symmetric(m, x), upper=upper)


def _symmetric_vectors(m: Any, x: Any) -> Any:
    """What does not depend on the phases of eigenvectors."""
    w, v = m.linalg.eigh(_symmetric(m, x)) if m is torch else m.eigh(_symmetric(m, x))
    return m.matmul(v, (w.exp() * w)[..., :, None] * (v.mH if m is torch else adjoint(v)))[..., 0, :] * w


def _singular(m: Any, x: Any) -> Any:
    """What does not depend on the phases of singular vectors: a function of x^H x, and U V^H of other weights."""
    u, s, vh = m.linalg.svd(x, full_matrices=False) if m is torch else m.svd(x, False)
    return m.matmul(u * s.exp()[..., None, :], vh)


def _qr(m: Any, x: Any) -> Any:
    q, r = m.linalg.qr(x) if m is torch else m.qr(x)
    return m.matmul(q * (1.5 - 0.5j), r * r)


def _signed_logarithm(m: Any, x: Any) -> Any:
    sign, logarithm = m.linalg.slogdet(x) if m is torch else m.slogdet(x)
    return sign * (logarithm + 2)


def _moments(m: Any, x: Any) -> Any:
    if m is torch:
        return x.var(-1) * x.std(-1, correction=0) + x.var()
    return meta.var(x, -1, 1) * meta.std(x, -1, 0) + meta.var(x, None, 1)


def _products(m: Any, x: Any) -> Any:
    return x.prod(-1) + m.prod(x) if m is torch else m.prod(x, -1) + m.prod(x)


def _scans(m: Any, x: Any) -> Any:
    return m.cumprod(x, -1) * m.cumsum(x, -1)


CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "eigenvalues": (_values, (_COMPLEX,)),
    "eigenvalues of real matrices": (_values, (_REAL,)),
    "eigenvectors": (_vectors, (_COMPLEX,)),
    "eigenvectors of real matrices": (_vectors, (_REAL,)),
    "inverse": (lambda m, x: m.linalg.inv(x) if m is torch else m.inv_ex(x)[0], (_COMPLEX,)),
    "solution": (lambda m, x, y: m.linalg.solve(x, y) if m is torch else m.solve_ex(x, y)[0], (_COMPLEX, _SIDE)),
    "triangular": (
        lambda m, x, y: m.linalg.solve_triangular(x, y, upper=True) if m is torch else m.solve_triangular(x, y, True),
        (_COMPLEX, _SIDE),
    ),
    "determinant": (lambda m, x: m.linalg.det(x) if m is torch else m.det(x), (_COMPLEX,)),
    "cholesky": (_cholesky(False), (_POSITIVE,)),
    "upper cholesky": (_cholesky(True), (_POSITIVE,)),
    "eigenvectors of Hermitian matrices": (_symmetric_vectors, (_POSITIVE,)),
    "singular vectors": (_singular, (_COMPLEX,)),
    "singular vectors of tall matrices": (_singular, (_TALL,)),
    "singular vectors of wide matrices": (_singular, (_WIDE,)),
    "qr": (_qr, (_COMPLEX,)),
    "qr of tall matrices": (_qr, (_TALL,)),
    "qr of wide matrices": (lambda m, x: (m.linalg.qr(x) if m is torch else m.qr(x))[1], (_WIDE,)),
    "sign and logarithm of the determinant": (_signed_logarithm, (_COMPLEX,)),
    "logarithm of the determinant": (lambda m, x: m.logdet(x) if m is torch else m.linalg.logdet(x), (_COMPLEX,)),
    "lu": (lambda m, x: m.linalg.lu(x)[1] * 2 + m.linalg.lu(x)[2], (_COMPLEX,)),
    "pseudo-inverse": (lambda m, x: m.linalg.pinv(x), (_TALL,)),
    "least squares": (lambda m, x, y: m.linalg.lstsq(x, y)[0], (_TALL, _SIDE)),
    "products of vectors": (lambda m, x, y: m.linalg.vecdot(x, y), (_COMPLEX[..., 0], _SIDE[..., 0])),
    "norms": (
        lambda m, x: m.linalg.vector_norm(x) + m.linalg.vector_norm(x, 3) + m.linalg.matrix_norm(x, 1).sum(),
        (_COMPLEX,),
    ),
    "moments": (_moments, (_COMPLEX,)),
    "products": (_products, (_ROW,)),
    "scans": (_scans, (_ROW,)),
    "covariances": (lambda m, x: m.cov(x) + m.corrcoef(x), (_COMPLEX[0],)),
    "exponential": (lambda m, x: m.linalg.matrix_exp(x) if m is torch else m.matrix_exp(x), (_COMPLEX * 0.3,)),
}


def _gradients(m: Any, function: Function, xs: list[Any]) -> list[Any]:
    """Those of a loss, and those of a sum of their absolute values."""
    grad = torch.autograd.grad if m is torch else meta.autograd.grad
    y = function(m, *xs)
    is_complex = y.is_complex() if m is torch else "complex" in y.dtype
    loss = m.real(y * (0.3 - 0.7j)).sum() if is_complex else (y * y).sum()
    first = grad(loss, xs, create_graph=True)
    second = sum((m.abs(g) * (i + 1)).sum() for i, g in enumerate(first))
    return [*first, *grad(second, xs)]


def check_gradients(case: str, device: str) -> None:
    """Gradients on a device are those of torch on the CPU."""
    function, values = CASES[case]
    ours = _gradients(meta, function, [meta.array(v, requires_grad=True, device=device) for v in values])
    theirs = _gradients(torch, function, [torch.tensor(v, requires_grad=True) for v in values])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_gradients_as_in_torch(case: str) -> None:
    check_gradients(case, "cpu")


def test_dialects_agree() -> None:
    x, y = meta.array(_COMPLEX), meta.array(_SIDE)
    results = []
    for name in ("reference", "torch"):
        with meta.with_dialect(name):
            results.append([
                meta.inv_ex(x)[0], meta.solve_ex(x, y)[0], meta.solve_triangular(x, y, True), meta.det(x),
                meta.cofactor(x), meta.matrix_exp(x), meta.matmul(x, y), *meta.slogdet(x), *meta.lu_factor_ex(x),
                meta.cholesky_ex(meta.array(_POSITIVE))[0], meta.cholesky_ex(meta.array(_POSITIVE), True)[0],
                meta.eigh(meta.array(_POSITIVE))[0], meta.svd(x)[1], meta.linalg.pinv(x[..., :2]), meta.qr(x)[0],
                meta.linalg.pinv(meta.array(_POSITIVE), hermitian=True), meta.prod(x, -1), meta.prod(x, ()),
                meta.var(x, -1, 1), meta.std(x, (0, 1), 0, True), meta.var(x, ()), meta.cumsum(x, 1, True, True),
                meta.cumprod(x, 1, True), meta.prod_dx(x, y[..., 0], (-1,)), meta.prod_dx(x, meta.sum(x), None),
            ])  # fmt: skip
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


def test_operators_of_real_numbers_refuse_complex_ones() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[logcumsumexp\] 'x' has dtype complex128; expected a real dtype"):
        meta.logcumsumexp(meta.array(_COMPLEX), 0)


def test_packed_factors_solve_with_the_conjugate_transpose() -> None:
    factors, pivots = meta.linalg.lu_factor(meta.array(_COMPLEX))
    theirs = torch.linalg.lu_factor(torch.tensor(_COMPLEX))
    for left, adjoint_of in ((True, True), (False, False), (False, True)):
        side = _SIDE if left else _SIDE.swapaxes(-1, -2).copy()
        ours = meta.linalg.lu_solve(factors, pivots, meta.array(side), left, adjoint_of)
        expected = torch.linalg.lu_solve(*theirs, torch.tensor(side), left=left, adjoint=adjoint_of)
        np.testing.assert_allclose(ours.numpy(), expected.resolve_conj().numpy(), rtol=1e-9, atol=1e-9)
