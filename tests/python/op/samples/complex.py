"""Samples of operators on complex numbers and their parts. Their gradients are tested in test_complex.py."""

from __future__ import annotations

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

_C = T(3, 4, dtype="complex64")

SAMPLES = [
    Sample("angle", T(3, 4, avoid=(0,)), ref=torch.angle),
    Sample("angle", _C, ref=torch.angle),
    Sample("complex", T(3, 4), T(3, 1), ref=torch.complex, dtypes=("float32", "float64"), grad=False),
    Sample("conj", T(3, 4), ref=torch.conj_physical),
    Sample("conj", _C, ref=torch.conj_physical),
    Sample("imag", _C, ref=torch.imag),
    Sample(
        "polar", T(3, 4, low=0.1, high=2), T(3, 1, low=-3, high=3), ref=torch.polar, dtypes=("float32", "float64"),
        grad=False,
    ),
    Sample("real", T(3, 4), ref=lambda x: x),
    Sample("real", _C, ref=torch.real),
    Sample("sgn", T(3, 4, avoid=(0,)), ref=torch.sgn),
    Sample("sgn", _C, ref=torch.sgn),
    Sample(
        "view_as_complex", T(3, 2), ref=lambda x: torch.complex(x[..., 0], x[..., 1]), dtypes=("float32", "float64"),
        grad=False,
    ),
    Sample("view_as_real", _C, ref=torch.view_as_real),
]  # fmt: skip

ERRORS = [
    ErrorCase("imag", T(3), error=TypeInferenceError, match="'x' has dtype float32; expected complex64, complex128"),
    ErrorCase("view_as_real", T(3), error=TypeInferenceError, match="'x' has dtype float32; expected complex64"),
    ErrorCase("view_as_complex", _C, error=TypeInferenceError, match="'x' has dtype complex64; expected float32, f"),
    ErrorCase("view_as_complex", T(3, 4), error=TypeInferenceError, match="'x' has shape (3, 4); expected 2 elements"),
    ErrorCase("complex", T(3), T(4), error=TypeInferenceError, match="shapes (3,) and (4,) do not broadcast"),
    ErrorCase("complex", T(3), T(3, dtype="float16"), error=TypeInferenceError, match="'im' has dtype float16"),
    ErrorCase("polar", T(3), T(3, dtype="float64"), error=TypeInferenceError, match="'phase' is float64; expected one"),
    ErrorCase("sgn", T(3, dtype="bool"), error=TypeInferenceError, match="'x' has dtype bool; expected numbers"),
    ErrorCase("sigmoid", _C, error=TypeInferenceError, match="'x' has dtype complex64; expected a real dtype; take a"),
    ErrorCase("greater", _C, 1.0, error=TypeInferenceError, match="'x1' has dtype complex64; expected a real dtype"),
    ErrorCase("greater", T(3), 1j, error=TypeInferenceError, match="'x2' is the complex number 1j; expected a real"),
    ErrorCase("arange", 0, 4, dtype="complex64", error=TypeInferenceError, match="the result would be complex"),
    ErrorCase("full", (2,), 1j, error=TypeInferenceError, match="the number 1j does not fit into float32; expected co"),
]  # fmt: skip
