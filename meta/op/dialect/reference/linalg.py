"""Matrix products in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import DIALECT


def matmul(x1: Any, x2: Any, transpose_a: bool, transpose_b: bool) -> Any:
    left = widen(x1).swapaxes(-1, -2) if transpose_a else widen(x1)
    right = widen(x2).swapaxes(-1, -2) if transpose_b else widen(x2)
    return np.matmul(left, right)


def dense(x: Any, w: Any, bias: Any) -> Any:
    product = np.matmul(widen(x), widen(w).T)
    return product if bias is None else product + widen(bias)


DIALECT.implement("dense", dense)
DIALECT.implement("matmul", matmul)
