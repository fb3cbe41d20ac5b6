"""Samples of matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _matmul(x1: Any, x2: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    return torch.matmul(x1.mT if transpose_a else x1, x2.mT if transpose_b else x2)


def _dense(x: Any, w: Any, bias: Any = None) -> Any:
    return F.linear(x, w, bias)


SAMPLES = [
    Sample("dense", T(3, 4), T(5, 4), ref=_dense),
    Sample("dense", T(3, 4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(2, 3, 4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(0, 4), T(5, 4), ref=_dense),
    Sample("dense", T(2, 0), T(5, 0), T(5), ref=_dense),
    Sample("dense", T(64, 40), T(48, 40), T(48), ref=_dense, grad=False, id="large"),
    Sample("matmul", T(3, 4), T(4, 5), ref=_matmul),
    Sample("matmul", T(4, 3), T(4, 5), transpose_a=True, ref=_matmul),
    Sample("matmul", T(3, 4), T(5, 4), transpose_b=True, ref=_matmul),
    Sample("matmul", T(4, 3), T(5, 4), transpose_a=True, transpose_b=True, ref=_matmul),
    Sample("matmul", T(2, 3, 4), T(2, 4, 5), ref=_matmul),
    Sample("matmul", T(2, 1, 4, 3), T(3, 5, 4), transpose_a=True, transpose_b=True, ref=_matmul),
    Sample("matmul", T(3, 4), T(2, 4, 5), ref=_matmul),
    Sample("matmul", T(4), T(4), ref=_matmul),
    Sample("matmul", T(4), T(2, 4, 3), ref=_matmul),
    Sample("matmul", T(2, 3, 4), T(4), ref=_matmul),
    Sample("matmul", T(2, 4, 3), T(4), transpose_a=True, ref=_matmul),
    Sample("matmul", T(4), T(3, 4), transpose_b=True, ref=_matmul),
    Sample("matmul", T(1, 1), T(1, 1), ref=_matmul),
    Sample("matmul", T(0, 4), T(4, 5), ref=_matmul),
    Sample("matmul", T(3, 0), T(0, 5), ref=_matmul),
    Sample("matmul", T(64, 48), T(48, 40), ref=_matmul, grad=False, id="large"),
    Sample("matmul", T(2, 48, 40), T(48, 40), transpose_a=True, ref=_matmul, grad=False, id="large_batch"),
]

ERRORS = [
    ErrorCase("dense", T(3, 4), T(5, 3), error=TypeInferenceError, match="equal last sizes"),
    ErrorCase("dense", T(3, 4), T(4), error=TypeInferenceError, match="w of two"),
    ErrorCase("dense", T(3, 4), T(5, 4), T(4), error=TypeInferenceError, match="'bias' has shape (4,)"),
    ErrorCase("dense", T(3, 4), T(5, 4, dtype="float64"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("matmul", T(2, 3), T(4, 5), error=TypeInferenceError, match="contract 3 with 4"),
    ErrorCase("matmul", T(2, 3), T(3, 5), transpose_a=True, error=TypeInferenceError, match="transpose_a=True"),
    ErrorCase("matmul", T(), T(3, 5), error=TypeInferenceError, match="at least one axis each"),
    ErrorCase("matmul", T(3), T(3, 5), transpose_a=True, error=TypeInferenceError, match="to transpose"),
    ErrorCase("matmul", T(2, 3), T(3, 5, dtype="int32"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("matmul", T(2, 2, 3), T(3, 3, 5), error=TypeInferenceError, match="do not broadcast"),
]
