"""Samples of eigenvalues of general matrices. Their gradients are tested in test_complex_matrices.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _eig(result: Any, x: Any) -> None:
    w, v = result
    tolerance = 1e-4 if w.dtype == np.complex64 else 1e-9
    np.testing.assert_allclose(x @ v, v * w[..., None, :], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=tolerance)


SAMPLES = [
    Sample("eig", T(2, 3, 3), check=_eig, grad=False, dtypes=("float32", "float64")),
    Sample("eig", T(3, 3, dtype="complex64"), check=_eig, grad=False),
    Sample("eig", T(0, 2, 2), check=_eig, grad=False, dtypes=("float32",)),
]

ERRORS = [
    ErrorCase("eig", T(2, 3), error=TypeInferenceError, match="expected square matrices"),
    ErrorCase("eig", T(2, 2, dtype="int64"), error=TypeInferenceError, match="'x' has dtype int64; expected float32"),
]
