"""Factorizations, inverses and functions of matrices: values, first and second gradients as torch has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import vm
from meta.errors import GradientError, LinAlgError
from tests.python.functional.linalg.against_torch import compare, normal

TL = torch.linalg


def definite(*shape: int) -> Any:
    """Symmetric matrices with eigenvalues of at least 1."""
    a = normal(*shape)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1])


def symmetric(x: Any) -> Any:
    return x + meta.swap_axis(x, -2, -1)


ROWS: dict[str, tuple[Any, Any, list[Any]]] = {
    "cholesky_ex": (lambda x: meta.cholesky_ex(x)[0], lambda x: TL.cholesky_ex(x)[0], [definite(2, 3, 3)]),
    "cholesky_ex upper": (lambda x: meta.cholesky_ex(x, True)[0], lambda x: TL.cholesky_ex(x, upper=True)[0],
                          [definite(3, 3)]),
    "lu_factor_ex": (lambda x: meta.lu_factor_ex(x)[0], lambda x: TL.lu_factor_ex(x)[0], [normal(2, 3, 3)]),
    "lu_factor_ex wide": (lambda x: meta.lu_factor_ex(x)[0], lambda x: TL.lu_factor_ex(x)[0], [normal(3, 5)]),
    "lu_factor_ex tall": (lambda x: meta.lu_factor_ex(x)[0], lambda x: TL.lu_factor_ex(x)[0], [normal(2, 5, 3)]),
    "qr tall": (meta.qr, lambda x: tuple(TL.qr(x)), [normal(2, 5, 3)]),
    "qr wide": (lambda x: meta.qr(x, True), lambda x: tuple(TL.qr(x, "complete")), [normal(3, 5)]),
    "svd tall": (lambda x: meta.svd(x, False), lambda x: tuple(TL.svd(x, False)), [normal(5, 3)]),
    "svd wide": (lambda x: meta.svd(x, False), lambda x: tuple(TL.svd(x, False)), [normal(2, 3, 4)]),
    "singular values": (lambda x: meta.svd(x, False)[1], TL.svdvals, [normal(3, 4)]),
    "eigh": (lambda x: meta.eigh(symmetric(x)), lambda x: tuple(TL.eigh(x + x.mT)), [normal(3, 3)]),
    "eigenvalues": (lambda x: meta.eigh(symmetric(x))[0], lambda x: TL.eigvalsh(x + x.mT), [normal(2, 3, 3)]),
    "pinv of low rank": (lambda x: meta.pinv(meta.matmul(x, x, False, True), hermitian=True),
                         lambda x: TL.pinv(x @ x.mT, hermitian=True), [normal(4, 2)]),
    "slogdet": (meta.slogdet, lambda x: tuple(TL.slogdet(x)), [normal(2, 3, 3)]),
    "matrix_exp": (meta.matrix_exp, TL.matrix_exp, [normal(2, 3, 3) * 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    compare(*ROWS[name])


@pytest.mark.parametrize("name", ["lu_factor_ex tall", "qr wide", "eigenvalues", "matrix_exp"])
def test_without_torch(name: str) -> None:
    with meta.with_dialect(["reference", "tvm"]):
        compare(*ROWS[name], order=1)


def test_determinants_of_singular_matrices_have_gradients() -> None:
    ones = np.ones((3, 3))
    rank_two = np.diag([1.0, 2.0, 0.0])
    x = meta.array(np.stack([ones, rank_two]), requires_grad=True)
    meta.det(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.stack([0 * ones, np.diag([0.0, 0.0, 2.0])]), atol=1e-14)


def test_errors_name_the_matrix() -> None:
    batch = meta.array(np.stack([np.eye(2), -np.eye(2)])[None])
    with pytest.raises(
        LinAlgError,
        match=r"\[cholesky\] matrix \(0, 1\) of the batch is not positive-definite: its leading minor of order 1",
    ):
        meta.cholesky_ex(batch, check_errors=True)
    singular = meta.array(np.stack([np.eye(2), np.ones((2, 2))]))
    match = r"matrix 1 of the batch is singular: pivot 2 of its LU factorization is 0; expected invertible matrices"
    for dialect in ("torch", "reference"):
        with meta.with_dialect(dialect):
            for call in (
                lambda: meta.lu_factor_ex(singular, check_errors=True),
                lambda: meta.inv_ex(singular, True),
                lambda: meta.solve_ex(singular, singular, True),
            ):
                with pytest.raises(LinAlgError, match=match):
                    call()
    with pytest.raises(LinAlgError, match=match):
        vm.compile(meta.trace(lambda x: meta.inv_ex(x, True)[0] + 1))(singular)
    assert [info.tolist() for info in (meta.inv_ex(singular)[1], meta.lu_factor_ex(singular)[2])] == [[0, 2], [0, 2]]


def test_a_complete_qr_of_tall_matrices_has_no_gradient() -> None:
    x = meta.array(normal(3, 2), requires_grad=True)
    with pytest.raises(GradientError, match="3 rows and 2 columns has no gradient; expected at most as many rows"):
        meta.qr(x, True)[0].sum().backward()


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("upper", [False, True])
def test_dialects_agree_on_matrices_without_a_cholesky_factor(upper: bool, dtype: str) -> None:
    """The columns before the pivot that is not positive stay, and the others are NaN."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((12, 4, 4)) + 1.2 * np.eye(4)
    x = meta.array((a + a.swapaxes(1, 2)).astype(dtype))
    results = []
    for dialect in ("torch", "reference"):
        with meta.with_dialect(dialect):
            factor, info = meta.cholesky_ex(x, upper)
        results.append((factor.numpy(), info.numpy()))
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert len(set(results[0][1].tolist())) > 2
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
