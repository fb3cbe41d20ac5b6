"""The functions of meta.linalg: values, first and second gradients as torch has them."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import linalg, vm
from meta.errors import LinAlgError, TypeInferenceError
from tests.python.functional.linalg.against_torch import compare, normal

TL = torch.linalg
SQUARE = normal(2, 3, 3)
FACTORS, PIVOTS = (t.numpy() for t in TL.lu_factor(torch.tensor(SQUARE)))
SPARSE = np.array([[1.0, 0, -2, 0], [3, 4, 0, 0], [0, 0, 0, 0]])


def definite(*shape: int) -> Any:
    a = normal(*shape)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1])


def lu_solve(**how: bool) -> tuple[Any, Any]:
    return (
        lambda f, b: linalg.lu_solve(f, meta.array(PIVOTS), b, **how),
        lambda f, b: TL.lu_solve(f, torch.tensor(PIVOTS), b, **how),
    )


Row = tuple[Any, Any, list[Any]]
ROWS: dict[str, Row] = {
    "solve of a vector": (linalg.solve, TL.solve, [SQUARE, normal(2, 3)]),
    "solve from the right": (lambda a, b: linalg.solve(a, b, left=False), lambda a, b: TL.solve(a, b, left=False),
                             [SQUARE, normal(2, 4, 3)]),
    "solve_triangular from the right": (
        lambda a, b: linalg.solve_triangular(a, b, True, left=False),
        lambda a, b: TL.solve_triangular(a, b, upper=True, left=False), [normal(3, 3), normal(2, 4, 3)]),
    "lu": (linalg.lu, lambda x: tuple(TL.lu(x)), [normal(2, 4, 3)]),
    "lu_solve": (*lu_solve(), [FACTORS, normal(3, 2)]),
    "lu_solve adjoint": (*lu_solve(adjoint=True), [FACTORS, normal(2, 3, 2)]),
    "lu_solve from the right": (*lu_solve(left=False), [FACTORS, normal(2, 4, 3)]),
    "pinv": (lambda x: linalg.pinv(x, rtol=0.1), lambda x: TL.pinv(x, rtol=0.1), [normal(4, 3)]),
    "lstsq tall": (lambda a, b: linalg.lstsq(a, b)[:2], lambda a, b: tuple(TL.lstsq(a, b, driver="gels")[:2]),
                   [normal(2, 5, 3), normal(2, 5, 2)]),
    "lstsq wide": (lambda a, b: linalg.lstsq(a, b)[0], lambda a, b: TL.lstsq(a, b)[0], [normal(3, 5), normal(3)]),
    "tensorinv": (lambda x: linalg.tensorinv(x, 1), lambda x: TL.tensorinv(x, 1), [normal(6, 2, 3)]),
    "tensorsolve": (lambda a, b: linalg.tensorsolve(a, b, (0, 2)), lambda a, b: TL.tensorsolve(a, b, (0, 2)),
                    [normal(3, 4, 4, 3), normal(4, 3)]),
    "matrix_power": (lambda x: linalg.matrix_power(x, 5), lambda x: TL.matrix_power(x, 5), [SQUARE]),
    "matrix_power of inverses": (lambda x: linalg.matrix_power(x, -2), lambda x: TL.matrix_power(x, -2), [SQUARE]),
    "logdet": (linalg.logdet, torch.logdet, [definite(2, 3, 3)]),
    "multi_dot": (lambda *x: linalg.multi_dot(x), lambda *x: TL.multi_dot(x),
                  [normal(3), normal(3, 4), normal(4, 2), normal(2)]),
    "vander": (lambda x: linalg.vander(x, 4), lambda x: TL.vander(x, N=4), [np.array([[0.0, 2, 3], [1, -1, 0]])]),
    "vecdot": (lambda a, b: linalg.vecdot(a, b, 0), lambda a, b: TL.vecdot(a, b, dim=0), [normal(3, 2), normal(3, 1)]),
    "cross": (lambda a, b: linalg.cross(a, b, 0), lambda a, b: TL.cross(a, b, dim=0), [normal(3, 2), normal(3, 1)]),
    "norm": (linalg.norm, TL.norm, [normal(2, 3, 4)]),
    "norm of a matrix": (lambda x: linalg.norm(x, 2, (0, 2), True), lambda x: TL.norm(x, 2, (0, 2), True),
                         [normal(2, 3, 4)]),
    "cond": (linalg.cond, TL.cond, [normal(2, 3, 4)]),
    "dist": (lambda a, b: meta.dist(a, b, 3.0), lambda a, b: torch.dist(a, b, 3.0), [normal(2, 3), normal(3)]),
    "cosine_similarity": (lambda a, b: meta.cosine_similarity(a, b, -1),
                          lambda a, b: torch.cosine_similarity(a, b, -1), [normal(2, 1, 3), normal(3)]),
    "pairwise_distance": (meta.pairwise_distance, torch.pairwise_distance, [normal(2, 3), normal(2, 3, seed=2)]),
    "renorm": (lambda x: meta.renorm(x, 1, -1, 1.5), lambda x: torch.renorm(x, 1, -1, 1.5), [normal(2, 3, 4)]),
    "cov": (meta.cov, torch.cov, [normal(3, 5)]),
    "cov of one variable": (meta.cov, torch.cov, [normal(5)]),
    "cov with weights": (
        lambda x, a: meta.cov(x, 0, meta.array([1, 2, 1, 3, 1]), a),
        lambda x, a: torch.cov(x, correction=0, fweights=torch.tensor([1, 2, 1, 3, 1]), aweights=a),
        [normal(3, 5), abs(normal(5))]),
    "corrcoef": (meta.corrcoef, torch.corrcoef, [normal(3, 5)]),
    **{f"matrix_norm {p}": (lambda x, p=p: linalg.matrix_norm(x, p, (0, -1)),
                            lambda x, p=p: TL.matrix_norm(x, p, (0, -1)), [normal(3, 2, 4)])
       for p in (1, -2, inf, "fro", "nuc")},
    **{f"vector_norm {p}": (lambda x, p=p: linalg.vector_norm(x, p, (0, -1)),
                            lambda x, p=p: TL.vector_norm(x, p, (0, -1)), [normal(3, 2, 4)])
       for p in (0.5, 1, 2, 3, -2.5, -inf)},
}  # fmt: skip
FIRST_ORDER: dict[str, Row] = {  # torch has no second order, or another convention
    "cholesky_solve": (linalg.cholesky_solve, lambda b, x: torch.cholesky_solve(b, x.tril()),
                       [normal(3, 2), np.tril(definite(2, 3, 3))]),
    "cholesky_solve upper": (lambda b, x: linalg.cholesky_solve(b, x, True),
                             lambda b, x: torch.cholesky_solve(b, x.triu(), upper=True),
                             [normal(3, 2), np.triu(definite(3, 3))]),
    "cholesky_inverse": (linalg.cholesky_inverse, lambda x: torch.cholesky_inverse(x.tril()), [definite(3, 3)]),
    # torch overwrites what the gradient of its own `cond` reads.
    "cond fro": (lambda x: linalg.cond(x, "fro"), lambda x: TL.matrix_norm(x) * TL.matrix_norm(TL.inv(x)), [SQUARE]),
    "pdist": (meta.pdist, torch.pdist, [normal(5, 3)]),
    **{f"cdist {p}": (lambda a, b, p=p: meta.cdist(a, b, p), lambda a, b, p=p: torch.cdist(a, b, p),
                      [normal(2, 4, 3), normal(3, 3)]) for p in (1.0, 2.0, 3.0, inf)},
    **{f"vector_norm {p} with zeros": (lambda x, p=p: linalg.vector_norm(x, p, -1),
                                       lambda x, p=p: TL.vector_norm(x, p, -1), [SPARSE]) for p in (0.5, 1.5, 2, inf)},
}  # fmt: skip
VALUES: dict[str, Row] = {
    "lu_unpack": (lambda f: linalg.lu_unpack(f, meta.array(PIVOTS))[0],
                  lambda f: torch.lu_unpack(f, torch.tensor(PIVOTS))[0], [FACTORS]),
    "qr without q": (lambda x: linalg.qr(x, "r"), lambda x: tuple(TL.qr(x, "r")), [normal(3, 2)]),
    "matrix_rank": (linalg.matrix_rank, TL.matrix_rank, [np.stack([np.ones((3, 3)), normal(3, 3)])]),
    "matrix_rank hermitian": (lambda x: linalg.matrix_rank(x, 1.0, 0.1, True),
                              lambda x: TL.matrix_rank(x, atol=1.0, rtol=0.1, hermitian=True), [definite(2, 3, 3)]),
    "matrix_rank of no values": (linalg.matrix_rank, TL.matrix_rank, [normal(2, 0, 3)]),
    "rank and values of lstsq": (lambda a, b: linalg.lstsq(a, b)[2:],
                                 lambda a, b: tuple(TL.lstsq(a, b, driver="gelsd")[2:]), [normal(4, 3), normal(4, 1)]),
    "matrix_power 0": (lambda x: linalg.matrix_power(x, 0), lambda x: TL.matrix_power(x, 0), [SQUARE]),
    "vander of a number": (lambda x: linalg.vander(x, 3), lambda x: TL.vander(x, N=3), [np.array(2.0)]),
    "vector_norm 0": (lambda x: linalg.vector_norm(x, 0), lambda x: TL.vector_norm(x, 0), [SPARSE]),
    "matrix_norm of nothing": (lambda x: linalg.matrix_norm(x, inf), lambda x: TL.matrix_norm(x, inf),
                               [normal(2, 0, 3)]),
    "pdist of one row": (meta.pdist, torch.pdist, [normal(1, 3)]),
    "cond of singular matrices": (lambda x: linalg.cond(x, 1), lambda x: TL.cond(x, 1), [np.zeros((2, 3, 3))]),
    "logdet below 0": (linalg.logdet, torch.logdet, [np.diag([1.0, -1.0])]),
    "slogdet of no rows": (linalg.slogdet, lambda x: tuple(TL.slogdet(x)), [normal(2, 0, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    compare(*ROWS[name])


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_values_and_first_gradients(name: str) -> None:
    compare(*FIRST_ORDER[name], order=1)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    compare(*VALUES[name], order=0)


def test_halves_are_added_up_in_float32() -> None:
    x = meta.full((4000,), 10.0, "float16")
    assert (linalg.vector_norm(x, 1).item(), linalg.vector_norm(x).dtype) == (40000.0, "float16")


def test_distances_of_many_vectors_are_computed_from_products() -> None:
    a, b = normal(520, 64), normal(520, 64, seed=1)
    distances = meta.cdist(meta.array(a), meta.array(b))
    np.testing.assert_allclose(distances.numpy(), torch.cdist(torch.tensor(a), torch.tensor(b)).numpy(), rtol=1e-9)


def test_programs_call_the_library() -> None:
    a, b = meta.array(definite(2, 3, 3)), meta.array(normal(2, 3, 2))
    a.requires_grad = True

    @meta.trace
    def step(a: Any, b: Any) -> Any:
        x = linalg.solve(a, b)
        y = (linalg.svdvals(x) * linalg.norm(linalg.cholesky(a))).sum()
        y.backward()
        return x, y, a.grad

    expected = step(a, b)
    for result, eager in zip(vm.compile(step)(a, b), expected, strict=True):
        np.testing.assert_allclose(result.numpy(), eager.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: linalg.inv(meta.ones((2, 2))), LinAlgError, r"\[inv\] the matrix is singular: pivot 2"),
        (lambda: linalg.cholesky(-meta.ones((1, 1))), LinAlgError, r"\[cholesky\] the matrix is not positive-definite"),
        (lambda: linalg.solve(meta.ones((2, 2)), meta.ones((3,))), TypeInferenceError, "expected 2 rows in b"),
        (lambda: linalg.solve(meta.ones((2, 2)), meta.ones((2,)), left=False), TypeInferenceError, "vectors; expected"),
        (lambda: linalg.qr(meta.ones((2, 2)), "full"), TypeInferenceError, "mode is 'full'; expected 'reduced'"),
        (lambda: linalg.matrix_norm(meta.ones((2, 2)), 3), TypeInferenceError, r"\[matrix_norm\] ord is 3"),
        (lambda: linalg.matrix_norm(meta.ones((2, 2)), 1, (0, 0)), TypeInferenceError, "names an axis twice"),
        (lambda: linalg.vector_norm(meta.ones((2,), "int32")), TypeInferenceError, "'x' has dtype int32"),
        (lambda: linalg.vector_norm(meta.ones((2, 0)), inf, -1), TypeInferenceError, "the norm of order inf of no"),
        (lambda: linalg.norm(meta.ones((2, 2, 2)), 2), TypeInferenceError, "ord is 2 for 3 axes"),
        (lambda: linalg.norm(meta.ones((2,)), "fro"), TypeInferenceError, "ord is 'fro' for a vector"),
        (lambda: linalg.matrix_power(meta.ones((2, 3)), 2), TypeInferenceError, "expected square matrices"),
        (lambda: linalg.multi_dot([meta.ones((2,))]), TypeInferenceError, "1 tensors; expected at least 2"),
        (lambda: linalg.multi_dot([meta.ones((2, 2)), meta.ones((2,)), meta.ones((2,))]), TypeInferenceError, "nsor 1"),
        (lambda: linalg.cross(meta.ones((2,)), meta.ones((2,))), TypeInferenceError, "sizes 2 and 2; expected 3"),
        (lambda: linalg.tensorinv(meta.ones((2, 3)), 1), TypeInferenceError, r"\[tensorinv\] 'x' has shape \(2, 3\)"),
        (lambda: linalg.lu_solve(meta.ones((2, 2)), meta.ones((2,)), meta.ones((2, 1))), TypeInferenceError, "int32"),
        (lambda: linalg.lstsq(meta.ones((2, 2)), meta.ones((3, 1))), TypeInferenceError, "expected 2 rows in b"),
        (lambda: meta.cdist(meta.ones((2, 3)), meta.ones((2, 2))), TypeInferenceError, "expected equal last sizes"),
        (lambda: meta.pdist(meta.ones((2,))), TypeInferenceError, r"\[pdist\] 'x' has shape \(2,\)"),
        (lambda: meta.renorm(meta.ones((2, 2)), -1, 0, 1.0), TypeInferenceError, "p is -1; expected a positive number"),
        (lambda: meta.cov(meta.ones((2, 2)), fweights=meta.array([1, -1])), TypeInferenceError, "has the weight -1"),
        (lambda: meta.cov(meta.ones((2, 2)), aweights=meta.ones((3,))), TypeInferenceError, "one an observation"),
    ],
)  # fmt: skip
def test_errors(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call()
