"""Samples of matrix factorizations. Gradients where only one triangle is read are those of symmetric matrices,
compared with torch in tests/python/functional/linalg."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _cholesky(x: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return tuple(torch.linalg.cholesky_ex(x, upper=upper))


def _lu(x: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    return tuple(torch.linalg.lu_factor_ex(x))


def _permutation(pivots: Any, size: int) -> Any:
    return torch.lu_unpack(torch.zeros(*pivots.shape[:-1], size, pivots.shape[-1]), pivots)[0].argmax(-2)


def _qr(x: Any, complete: bool = False) -> Any:
    return tuple(torch.linalg.qr(x, "complete" if complete else "reduced"))


def _svd(result: Any, x: Any, full_matrices: bool = True) -> None:
    """Singular vectors may have either sign, and each dialect has its own."""
    u, s, vh = result
    k = s.shape[-1]
    _assert_close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
    _assert_orthonormal(u)
    _assert_orthonormal(vh.swapaxes(-1, -2))
    _assert_close(s, np.linalg.svd(x, compute_uv=False))


def _eigh(result: Any, x: Any, upper: bool = False) -> None:
    w, v = result
    _assert_close((v * w[..., None, :]) @ v.swapaxes(-1, -2), x)
    _assert_orthonormal(v)
    _assert_close(w, np.linalg.eigvalsh(x))


def _assert_orthonormal(columns: Any) -> None:
    _assert_close(
        columns.swapaxes(-1, -2) @ columns,
        np.broadcast_to(np.eye(columns.shape[-1]), columns.shape[:-2] + columns.shape[-1:] * 2),
    )


def _assert_close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=50 * np.finfo(actual.dtype).eps)


SAMPLES = [
    Sample("cholesky_ex", T(2, 3, 3, definite=True), ref=_cholesky, grad=False),
    Sample("cholesky_ex", T(3, 3, definite=True), True, True, ref=_cholesky, grad=False),
    Sample("cholesky_ex", T(0, 0), ref=_cholesky, grad=False),
    Sample("lu_factor_ex", T(2, 3, 3), ref=_lu),
    Sample("lu_factor_ex", T(2, 4), ref=_lu),
    Sample("lu_factor_ex", T(4, 2), True, True, ref=_lu),
    Sample("lu_factor_ex", T(2, 0, 3), ref=_lu),
    Sample("pivots_to_permutation", T(2, 3, dtype="int32", low=3, high=5), 4, ref=_permutation),
    Sample("qr", T(2, 4, 3), ref=_qr),
    Sample("qr", T(2, 3), True, ref=_qr),
    Sample("qr", T(3, 2), True, ref=_qr, grad=False),
    Sample("qr", T(0, 2), ref=_qr),
    Sample("svd", T(3, 2), False, check=_svd),
    Sample("svd", T(2, 2, 3), check=_svd, grad=False),
    Sample("svd", T(0, 3), False, check=_svd),
    Sample("eigh", T(2, 3, 3, definite=True), check=_eigh, grad=False),
    Sample("eigh", T(3, 3, definite=True), True, check=_eigh, grad=False),
]

ERRORS = [
    ErrorCase("cholesky_ex", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("cholesky_ex", T(3), error=TypeInferenceError, match="'x' has shape (3,); expected at least 2 axes"),
    ErrorCase("cholesky_ex", T(2, 2, dtype="float16"), error=TypeInferenceError, match="'x' has dtype float16"),
    ErrorCase("lu_factor_ex", T(3), error=TypeInferenceError, match="at least 2 axes"),
    ErrorCase("pivots_to_permutation", T(3, dtype="int32"), 2, error=TypeInferenceError, match="is 2 for 3 pivots"),
    ErrorCase("pivots_to_permutation", T(3), 3, error=TypeInferenceError, match="'pivots' has dtype float32"),
    ErrorCase("qr", T(2, 2, dtype="int32"), error=TypeInferenceError, match="'x' has dtype int32"),
    ErrorCase("svd", T(2), error=TypeInferenceError, match="at least 2 axes"),
    ErrorCase("eigh", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
]  # fmt: skip
