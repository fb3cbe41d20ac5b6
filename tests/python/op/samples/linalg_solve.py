"""Samples of inverses, solutions of linear systems, determinants and functions of matrices."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

_LINALG = torch.linalg


def _inv(x: Any, check_errors: bool = False) -> Any:
    return tuple(_LINALG.inv_ex(x))


def _solve(a: Any, b: Any, check_errors: bool = False) -> Any:
    return _LINALG.solve_ex(a, b)[0], _LINALG.inv_ex(a).info


def _solve_triangular(a: Any, b: Any, upper: bool, unitriangular: bool = False) -> Any:
    return _LINALG.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)


def _cofactor(x: Any) -> Any:
    return _LINALG.det(x)[..., None, None] * _LINALG.inv(x).mT


def _slogdet(x: Any) -> Any:
    return tuple(_LINALG.slogdet(x))


def _pinv(x: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    return _LINALG.pinv(x, atol=atol, rtol=rtol, hermitian=hermitian)


SAMPLES = [
    Sample("cofactor", T(2, 3, 3, definite=True), ref=_cofactor),
    Sample("det", T(2, 3, 3), ref=_LINALG.det),
    Sample("det", T(0, 0), ref=_LINALG.det),
    Sample("inv_ex", T(2, 3, 3, definite=True), ref=_inv),
    Sample("inv_ex", T(2, 2, definite=True), True, ref=_inv),
    Sample("matrix_exp", T(2, 3, 3), ref=_LINALG.matrix_exp),
    Sample("matrix_exp", T(3, 3, low=-9, high=9), ref=_LINALG.matrix_exp, grad=False),
    Sample("pinv", T(2, 3, 2), ref=_pinv),
    Sample("pinv", T(2, 3), T(low=0.1, high=0.2), T(low=0.1, high=0.2), ref=_pinv, grad=False),
    Sample("pinv", T(3, 3, definite=True), hermitian=True, ref=_pinv, grad=False),
    Sample("slogdet", T(2, 3, 3), ref=_slogdet),
    Sample("solve_ex", T(2, 3, 3, definite=True), T(3, 2), ref=_solve),
    Sample("solve_ex", T(3, 3, definite=True), T(2, 3, 1), True, ref=_solve),
    Sample("solve_triangular", T(3, 3, definite=True), T(2, 3, 2), True, ref=_solve_triangular),
    Sample("solve_triangular", T(2, 3, 3), T(3, 2), False, True, ref=_solve_triangular),
]

ERRORS = [
    ErrorCase("inv_ex", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("det", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("cofactor", T(3), error=TypeInferenceError, match="at least 2 axes"),
    ErrorCase("matrix_exp", T(2, 2, dtype="int64"), error=TypeInferenceError, match="'x' has dtype int64"),
    ErrorCase("pinv", T(2, 3), hermitian=True, error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("pinv", T(2, 3), T(2), error=TypeInferenceError, match="a shape that broadcasts to the batch"),
    ErrorCase("slogdet", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("solve_ex", T(3, 3), T(2, 3), error=TypeInferenceError, match="expected 3 rows in b"),
    ErrorCase("solve_triangular", T(3, 3), T(3), True, error=TypeInferenceError, match="'b' has shape (3,)"),
]  # fmt: skip
