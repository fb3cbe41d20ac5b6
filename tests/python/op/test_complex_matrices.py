"""Linear algebra of complex matrices, and eigenvalues of general ones: dialects, gradients against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import TypeInferenceError

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


_CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
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


@pytest.mark.parametrize("case", _CASES)
def test_gradients_as_in_torch(case: str) -> None:
    function, values = _CASES[case]
    ours = _gradients(meta, function, [meta.array(v, requires_grad=True) for v in values])
    theirs = _gradients(torch, function, [torch.tensor(v, requires_grad=True) for v in values])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=1e-7, atol=1e-8)


def test_dialects_agree() -> None:
    x, y = meta.array(_COMPLEX), meta.array(_SIDE)
    results = []
    for name in ("reference", "torch"):
        with meta.with_dialect(name):
            results.append([
                meta.inv_ex(x)[0], meta.solve_ex(x, y)[0], meta.solve_triangular(x, y, True), meta.det(x),
                meta.cofactor(x), meta.matrix_exp(x), meta.matmul(x, y),
            ])  # fmt: skip
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


def test_factorizations_of_complex_matrices_are_refused() -> None:
    with pytest.raises(
        TypeInferenceError, match=r"\[qr\] 'x' has dtype complex128; expected a real dtype; take a part"
    ):
        meta.qr(meta.array(_COMPLEX))
